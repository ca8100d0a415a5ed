//! The bookmarks of a watch: they carry a version, and no object.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::object::text;

/// The annotation of the bookmark that ends the initial events of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// `metadata` of a bookmark.
#[derive(Deserialize)]
struct BookmarkObject {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: Value,
    annotations: Value,
}

/// The content of a bookmark.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bookmark {
    /// The resource version up to which the watch has sent everything.
    pub(super) reached: Option<String>,
    /// True if all initial events have been sent.
    pub(super) initial_events_end: bool,
}

impl Bookmark {
    /// Reads a bookmark, leniently.
    pub(super) fn of(json: &str) -> Self {
        let metadata = serde_json::from_str::<BookmarkObject>(json).map(|found| found.metadata).unwrap_or_default();
        Self {
            reached: text(&metadata.resource_version).map(Cow::into_owned),
            initial_events_end: metadata.annotations[INITIAL_EVENTS_END] == "true",
        }
    }

    /// Returns its version, unless that is older than a known one.
    pub(super) fn reached_since(self, known: &str) -> Option<String> {
        self.reached.filter(|reached| !is_older(reached, known))
    }
}

/// Returns true if both versions are numbers and the first is smaller.
fn is_older(one: &str, other: &str) -> bool {
    matches!((one.parse::<u64>(), other.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::plain(r#"{"metadata":{"resourceVersion":"7"}}"#, Some("7"), false)]
    #[case::end(
        r#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}"#,
        Some("7"),
        true
    )]
    #[case::other(
        r#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"no"}}}"#,
        Some("7"),
        false
    )]
    #[case::odd(r#"{"metadata":{"annotations":"k8s.io/initial-events-end"}}"#, None, false)]
    #[case::empty("{}", None, false)]
    fn a_bookmark_says_how_far_it_reaches_and_whether_a_list_ends(
        #[case] json: &str,
        #[case] reached: Option<&str>,
        #[case] initial_events_end: bool,
    ) {
        assert_eq!(Bookmark::of(json), Bookmark { reached: reached.map(Into::into), initial_events_end });
    }
}
