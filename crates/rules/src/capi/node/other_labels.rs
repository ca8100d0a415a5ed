//! The labels of a Node that describe its group, as a text that similar Nodes share.

use std::{collections::HashSet, fmt::Write as _};

use arcstr::ArcStr;
use parking_lot::Mutex;

use crate::{
    capi::{LONGEST_VALUE, wire},
    node_labels::{Names, describes_group},
};

/// The maximum number of bytes of the texts that the Nodes of a workload cluster share. Similar Nodes share one of some
/// 2 KiB, so that only Nodes with labels of their own come near it.
const MOST_SHARED: usize = 2 << 20;

/// The memory of a text besides its bytes.
const TEXT: usize = 64;

/// The labels of a Node besides [`Node::TEMPLATE_LABELS`](super::Node::TEMPLATE_LABELS) that may describe its group: a line `key=value` for each, in
/// the order of the keys. `None` if they aren't kept.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OtherLabels(Option<ArcStr>);

impl OtherLabels {
    /// Returns the labels as text; `None` if they aren't kept.
    pub fn text(&self) -> Option<&ArcStr> {
        self.0.as_ref()
    }

    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut labels = self.0.as_ref()?.lines().filter_map(|line| line.split_once('='));
        labels.find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    pub(super) fn of(labels: Option<&wire::Texts<'_>>, node: &Names<'_>, texts: &SharedTexts) -> Self {
        let mut text = String::with_capacity(1024);
        for (key, value) in labels.into_iter().flat_map(wire::Map::iter) {
            // An API server accepts no label with these characters.
            let is_label = !key.contains(['=', '\n']) && !value.contains('\n');
            if is_label && describes_group(key, value, node) {
                let written = writeln!(text, "{key}={}", &**value);
                debug_assert!(written.is_ok(), "a text takes all");
            }
            if text.len() > LONGEST_VALUE {
                return Self(None);
            }
        }
        Self(texts.share(&text))
    }
}

impl<'a> FromIterator<&'a str> for OtherLabels {
    /// Collects lines `key=value`, which must be in the order of their keys.
    fn from_iter<I: IntoIterator<Item = &'a str>>(lines: I) -> Self {
        Self(Some(lines.into_iter().flat_map(|line| [line, "\n"]).collect::<String>().into()))
    }
}

/// The texts of [`OtherLabels`] that the Nodes of a workload cluster share. They have a limit of their own instead of
/// counting with each Node.
#[derive(Debug, Default)]
pub(super) struct SharedTexts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    texts: HashSet<ArcStr>,
    bytes: usize,
}

impl SharedTexts {
    /// Returns the shared copy of a text, or `None` if the texts that are in use leave no place for it.
    fn share(&self, text: &str) -> Option<ArcStr> {
        let mut known = self.0.lock();
        if let Some(text) = known.texts.get(text) {
            return Some(text.clone());
        }
        let more = TEXT + text.len();
        if known.bytes + more > MOST_SHARED {
            known.texts.retain(|text| ArcStr::strong_count(text).is_none_or(|count| count > 1));
            known.bytes = known.texts.iter().map(|text| TEXT + text.len()).sum();
        }
        if known.bytes + more > MOST_SHARED {
            return None;
        }
        let text = ArcStr::from(text);
        known.bytes += more;
        known.texts.insert(text.clone());
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_only_texts_that_are_known_are_shared() {
        let texts = SharedTexts::default();
        let text = |number: usize| format!("{number:01024}");
        let held: Vec<_> = (0..).map_while(|number| texts.share(&text(number))).collect();
        assert_eq!(held.len(), MOST_SHARED / (1024 + TEXT));
        assert!(ArcStr::ptr_eq(&texts.share(&text(0)).unwrap(), &held[0]));
        drop(held);
        assert!(texts.share(&text(usize::MAX)).is_some(), "the others aren't in use any more");
    }
}
