//! Suffixes of generated names, which look random and are the same in every run.

/// Letters and digits that form no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A source of suffixes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    drawn: u64,
}

impl Names {
    /// Returns five characters that haven't been used for long.
    pub(crate) fn suffix(&mut self) -> String {
        self.drawn += 1;
        code(self.drawn)
    }
}

/// Returns the five characters of a text, which are always the same.
pub(crate) fn suffix_of(text: &str) -> String {
    code(hash(text))
}

/// Returns five characters for a number.
fn code(number: u64) -> String {
    let mut rest = scatter(number);
    let base = ALPHABET.len() as u64;
    let mut text = String::with_capacity(5);
    for _ in 0..5 {
        let index = usize::try_from(rest % base).unwrap_or_default();
        text.push(char::from(ALPHABET[index]));
        rest /= base;
    }
    text
}

/// Returns a hash of a text, for the label that distinguishes templates.
pub(crate) fn hash(text: &str) -> u64 {
    // FNV-1a
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads nearby numbers over the whole range (the finalizer of SplitMix64).
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn suffixes_are_the_same_in_every_run_and_hardly_repeat() {
        let draw = || {
            let mut names = Names::default();
            (0..1000).map(|_| names.suffix()).collect::<Vec<_>>()
        };
        let drawn = draw();
        assert_eq!(drawn, draw());
        assert!(drawn.iter().all(|suffix| suffix.len() == 5));
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 1000);
    }
}
