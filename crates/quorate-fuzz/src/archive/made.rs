//! LTX files whose content the fuzzer chooses: mostly in order, in some places not.

use crate::input::Input;

pub const FILES_MAX: usize = 3;
const PAGES_MAX: u8 = 6;
/// SQLite's page sizes are 2^9 to 2^16. Small ones are faster.
const PAGE_SIZES: [u32; 4] = [512, 512, 1024, 65_536];
const LOCK_OFFSET: u32 = 1 << 30;
const NO_CHECKSUM: u64 = 2;
const BLOCK: u64 = 1;
const LEGACY: u64 = 0;
/// The numbers of pages around the lock page and at the end.
const FAR: u8 = 224;
/// The bytes at the end of an LZ4 block that no match may reach.
const LAST_LITERALS: usize = 5;
const MATCH_MIN: usize = 4;

/// Assembles a file, with a wrong checksum. Its transactions mostly follow the transaction `after`, which becomes its
/// last one.
pub fn file(input: &mut Input, after: &mut u64) -> Vec<u8> {
    let page_size = PAGE_SIZES.get(usize::from(input.u8() % 16)).copied().unwrap_or(512);
    let first = input.near(*after + 1);
    let width = u64::from(input.u8() % 4);
    *after = input.near(first.saturating_add(width));
    let numbers = numbers(input, page_size, first == 1);
    let last = numbers.last().copied().unwrap_or(1);

    let mut bytes = b"LTX1".to_vec();
    bytes.extend((input.near(NO_CHECKSUM) as u32).to_be_bytes());
    bytes.extend(page_size.to_be_bytes());
    bytes.extend((input.near(last) as u32).to_be_bytes());
    bytes.extend(first.to_be_bytes());
    bytes.extend(after.to_be_bytes());
    bytes.extend(input.u64().to_be_bytes());
    let rest = if input.rarely() { input.bytes(60) } else { &[] };
    bytes.extend(rest);
    bytes.resize(100, 0);

    let mut index = Vec::new();
    for number in numbers {
        let offset = bytes.len() as u64;
        frame(input, number, page_size as usize, &mut bytes);
        for field in [number, offset, bytes.len() as u64 - offset] {
            push_uvarint(&mut index, input.near(field));
        }
    }
    bytes.extend([0; 6]);
    index.push(0);
    bytes.extend(&index);
    bytes.extend(input.near(index.len() as u64).to_be_bytes());
    bytes.extend(input.near(0).to_be_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// Chooses the pages of a file: all from 1 on in a snapshot, otherwise also some that lie far away.
fn numbers(input: &mut Input, page_size: u32, is_snapshot: bool) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut last = 0;
    for _ in 0..input.u8() % PAGES_MAX {
        let distance = input.u8();
        let next = match distance {
            FAR.. if !is_snapshot => u64::from(LOCK_OFFSET / page_size) + u64::from(distance % 8),
            _ if is_snapshot => last + 1,
            _ => last + 1 + u64::from(distance % 8),
        };
        last = input.near(next);
        numbers.push(last);
    }
    numbers
}

/// Appends the frame of a page, as an LZ4 block or an LZ4 frame.
fn frame(input: &mut Input, number: u64, page_size: usize, bytes: &mut Vec<u8>) {
    let flags = if input.rarely() { LEGACY } else { BLOCK };
    let flags = input.near(flags);
    let block = block(input, page_size);
    bytes.extend((number as u32).to_be_bytes());
    bytes.extend((flags as u16).to_be_bytes());
    let length = input.near(block.len() as u64) as u32;
    if flags != LEGACY {
        bytes.extend(length.to_be_bytes());
        bytes.extend(block);
        return;
    }
    // Without a checksum of the block, and without a dictionary.
    let flags = input.near(0b0110_0100) as u8;
    bytes.extend(0x184D_2204_u32.to_le_bytes());
    bytes.extend([flags, 0x40]);
    bytes.extend(if flags & 8 == 0 { &[][..] } else { &[0; 8] });
    bytes.push(0);
    bytes.extend(length.to_le_bytes());
    bytes.extend(block);
    bytes.extend([0; 4]);
    bytes.extend(if flags & 4 == 0 { &[][..] } else { &[0; 4] });
}

/// Compresses a page that begins with some bytes and goes on with repetitions of the last one; rarely, takes the
/// compressed bytes from the input.
fn block(input: &mut Input, page_size: usize) -> Vec<u8> {
    if input.rarely() {
        return input.short().to_vec();
    }
    let content = input.short();
    let literals = [&[0], content].concat();
    let Some(repeated) = page_size.checked_sub(literals.len() + LAST_LITERALS) else { return Vec::new() };
    let mut block = vec![nibble(literals.len()) << 4 | nibble(repeated - MATCH_MIN)];
    push_length(&mut block, literals.len());
    block.extend(literals);
    block.extend(1_u16.to_le_bytes());
    push_length(&mut block, repeated - MATCH_MIN);
    block.push(nibble(LAST_LITERALS) << 4);
    block.extend([7; LAST_LITERALS]);
    block
}

/// Returns what the token of a sequence says about a length: 15 if more bytes follow.
fn nibble(length: usize) -> u8 {
    length.min(15) as u8
}

/// Appends the rest of a length for which the token has no room.
fn push_length(block: &mut Vec<u8>, length: usize) {
    if let Some(rest) = length.checked_sub(15) {
        block.extend(std::iter::repeat_n(255, rest / 255));
        block.push((rest % 255) as u8);
    }
}

fn push_uvarint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
