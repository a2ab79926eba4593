//! The pieces of images that stores send each other, and the small files and records that they keep.

use quorate_sql::fuzzing::{CURRENT, IMAGE_PIECE, OUTCOMES};

use crate::input::Input;

/// Checks that a piece of an image, to which the right checksum is appended, stays the same when it is decoded and
/// encoded again, and that it is refused when any bit is flipped.
pub fn image_piece(data: &[u8]) {
    let mut input = Input(data);
    let place = usize::from(input.u16());
    let mut piece = input.0.to_vec();
    piece.extend(crc32c::crc32c(&piece).to_le_bytes());
    let Some(once) = IMAGE_PIECE(&piece) else { return };
    assert_eq!(IMAGE_PIECE(&once).as_ref(), Some(&once), "a piece changed when it was encoded again");
    let (at, bit) = (place / 8 % piece.len(), place % 8);
    if let Some(byte) = piece.get_mut(at) {
        *byte ^= 1 << bit;
    }
    assert_eq!(IMAGE_PIECE(&piece), None, "a flipped bit at byte {at} is not detected");
}

/// Checks the kept outcomes of a session, which decoding may sort, and the file `CURRENT`, which has exactly one valid
/// text for each generation.
pub fn files(data: &[u8]) {
    let mut input = Input(data);
    match input.u8() % 3 {
        0 => {
            let Some(once) = OUTCOMES(input.0) else { return };
            assert_eq!(once.len(), input.0.len(), "an outcome is lost");
            assert_eq!(OUTCOMES(&once).as_ref(), Some(&once), "the outcomes changed when they were encoded again");
        }
        1 => assert!(CURRENT(input.0).is_none_or(|again| again == input.0), "two texts for a generation"),
        _ => {
            let mut text = [b"quorate generation 1\n", input.0, b"\n"].concat();
            text.extend(format!("{:08x}\n", crc32c::crc32c(&text)).bytes());
            assert!(CURRENT(&text).is_none_or(|again| again == text), "two texts for a generation");
        }
    }
}
