//! Problems of a group, worded once for the log, metrics and later views.

use std::{borrow::Cow, fmt};

/// The class of a problem: a metric label, so the set is closed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ProblemKind {
    /// The min or max size annotation.
    Bounds,
    /// A capacity annotation or an entry of status.capacity.
    Capacity,
    /// The labels annotation.
    Labels,
    /// The taints annotation or a taint of the template.
    Taints,
    /// An override of an autoscaling option.
    Options,
    /// The price annotation.
    Price,
    /// The infrastructure template can't be read.
    Template,
    /// The object itself doesn't decode.
    Undecodable,
}

impl ProblemKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Bounds,
        Self::Capacity,
        Self::Labels,
        Self::Taints,
        Self::Options,
        Self::Price,
        Self::Template,
        Self::Undecodable,
    ];

    /// As a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bounds => "bounds",
            Self::Capacity => "capacity",
            Self::Labels => "labels",
            Self::Taints => "taints",
            Self::Options => "options",
            Self::Price => "price",
            Self::Template => "template",
            Self::Undecodable => "undecodable",
        }
    }
}

/// One thing that is wrong: it names the field, its value, the rule and the remedy. The object is named by
/// whoever shows it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Problem {
    /// The class.
    pub kind: ProblemKind,
    /// For people.
    pub message: String,
}

impl Problem {
    /// A problem of a class.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A problem of an annotation's value as a whole; `rule` says what is allowed and what to do.
    #[must_use]
    pub fn annotation(kind: ProblemKind, key: &str, value: &str, rule: &str) -> Self {
        Self::new(kind, format!("annotation {key} is {:?}: {rule}", Clipped(value)))
    }

    /// A problem of one entry of an annotation that holds a list.
    #[must_use]
    pub fn annotation_entry(kind: ProblemKind, key: &str, entry: &str, rule: &str) -> Self {
        Self::new(kind, format!("annotation {key}, entry {:?}: {rule}", Clipped(entry)))
    }
}

/// As many problems of one object are told.
const MOST_PROBLEMS: usize = 20;

/// Keeps the first problems and counts the others: one annotation has room for 100,000 wrong entries.
pub(super) fn keep_first(problems: &mut Vec<Problem>) {
    if let Some(kind) = problems.get(MOST_PROBLEMS).map(|problem| problem.kind) {
        let others = problems.len() - MOST_PROBLEMS;
        problems.truncate(MOST_PROBLEMS);
        problems.push(Problem::new(kind, format!("and {others} more problems; correct the first ones to see them")));
        problems.shrink_to_fit();
    }
}

/// Text of an object, quoted, and cut where it is too long to be shown: an annotation may hold 256 KiB.
pub(super) struct Clipped<'a>(pub(super) &'a str);

impl Clipped<'_> {
    /// As many characters are shown.
    const LONGEST: usize = 120;
}

impl fmt::Debug for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(Self::LONGEST) {
            Some((end, _)) => write!(f, "{:?} (cut)", self.0.get(..end).unwrap_or_default()),
            None => fmt::Debug::fmt(self.0, f),
        }
    }
}

/// Text of an object, cut where it is too long to be shown.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(Clipped::LONGEST) {
        Some((end, _)) => format!("{} (cut)", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
