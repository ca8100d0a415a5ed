//! What is wrong with a group, told once for the log, metrics and later views.

use std::fmt;

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
    /// The infrastructure template can't be read.
    Template,
    /// The object itself doesn't decode.
    Undecodable,
}

impl ProblemKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Bounds, Self::Capacity, Self::Labels, Self::Taints, Self::Options, Self::Template, Self::Undecodable];

    /// As a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bounds => "bounds",
            Self::Capacity => "capacity",
            Self::Labels => "labels",
            Self::Taints => "taints",
            Self::Options => "options",
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
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
