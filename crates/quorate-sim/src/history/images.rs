//! What the history knows of images: which lives have received, verified and installed one, and which may fail to.

use quorate_model::{Applied, StoreFault};

use super::{History, node_of};

impl History {
    /// Records that a node's store begins to install an image.
    pub fn installing(&self, who: &str) {
        self.known().installers.insert(who.to_owned());
    }

    /// Returns whether the image that a life receives may be damaged: the life has not verified it yet, so it must
    /// notice.
    pub fn may_damage_image(&self, who: &str) -> bool {
        let mut known = self.known();
        let may = !known.verified.contains(who);
        if may {
            known.bad_keepers.insert(who.to_owned());
        }
        may
    }

    /// Records that the disk of a life may fail, so that the life may refuse images.
    pub fn may_lose_images(&self, who: &str) {
        self.known().bad_keepers.insert(who.to_owned());
    }

    /// Records that a life has verified an image.
    pub fn verified(&self, who: &str) {
        self.known().verified.insert(who.to_owned());
    }

    /// Records that a node refuses an image that arrived completely. This is a violation unless the node's disk may
    /// have damaged the image, because a sender never sends an image that is not sound.
    pub fn refused(&self, who: &str, fault: &StoreFault) {
        self.0.trace.add(who, format_args!("an image is refused: {fault}"));
        let is_excused = self.known().bad_keepers.contains(who);
        if matches!(fault, StoreFault::ImageLost(_)) && !is_excused {
            self.violation(format!("{who} got an image that is not sound: {fault}"));
        }
    }

    /// Whether a life may have installed an image.
    pub fn has_installed(&self, who: &str) -> bool {
        self.known().installers.contains(who)
    }

    /// Whether a life may have ended after an image was installed and before the log recorded that. The node then comes
    /// back as a new member (docs/decisions/0005-identity-and-birth.md).
    pub fn has_failed_to_install(&self, who: &str) -> bool {
        self.known().failed_installers.contains(who)
    }

    /// Records that a node's store has installed an image or failed to.
    pub fn installed(&self, who: &str, result: &Result<Applied, StoreFault>) {
        let Ok(applied) = result else {
            self.0.trace.add(who, format_args!("image not installed: {result:?}"));
            self.known().failed_installers.insert(who.to_owned());
            return;
        };
        let index = applied.index();
        self.0.trace.add(who, format_args!("image installed at {index}"));
        let mut known = self.known();
        known.installs += 1;
        known.healed += u64::from(known.tampered.remove(node_of(who)));
        known.spoiled.remove(node_of(who));
        let expected = known.entries.get(&index).map(|entry| entry.log_id);
        drop(known);
        if expected.is_some() && expected != applied.log_id {
            self.violation(format!("{who} installed an image at {:?}, where others have {expected:?}", applied.log_id));
        }
    }
}
