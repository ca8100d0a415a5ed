//! The conditions of a row that people look for, and their severities.

/// A condition of a row that people look for; the most urgent first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Condition {
    /// It isn't a node group because of an error.
    LeftOut,
    /// It has problems; the settings that they concern are ignored.
    Problem,
    /// The last command for it was refused or failed.
    Refused,
    /// Instances of it have failed.
    Failed,
    /// Its size is below the min size or above the max size.
    OutsideBounds,
    /// It is rolling out, or about to.
    RollingOut,
    /// Instances are being created or deleted.
    Scaling,
    /// None of the other conditions is true.
    Steady,
    /// It isn't a node group, on purpose.
    NoGroup,
}

/// The severity of a condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Severity {
    Bad,
    Odd,
    Busy,
    Good,
    Quiet,
}

impl Condition {
    pub(super) const ALL: [Self; 9] = [
        Self::LeftOut,
        Self::Problem,
        Self::Refused,
        Self::Failed,
        Self::OutsideBounds,
        Self::RollingOut,
        Self::Scaling,
        Self::Steady,
        Self::NoGroup,
    ];

    /// Returns the name of the condition in the query of a URL.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::LeftOut => "left-out",
            Self::Problem => "problem",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::OutsideBounds => "outside-bounds",
            Self::RollingOut => "rolling-out",
            Self::Scaling => "scaling",
            Self::Steady => "steady",
            Self::NoGroup => "no-group",
        }
    }

    /// Returns the title for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::LeftOut => "excluded",
            Self::Problem => "problem",
            Self::Refused => "last command refused or failed",
            Self::Failed => "failed instances",
            Self::OutsideBounds => "outside its bounds",
            Self::RollingOut => "rolling out",
            Self::Scaling => "scaling",
            Self::Steady => "steady",
            Self::NoGroup => "excluded on purpose",
        }
    }

    pub(super) fn severity(self) -> Severity {
        match self {
            Self::LeftOut | Self::Problem | Self::Refused | Self::Failed => Severity::Bad,
            Self::OutsideBounds | Self::RollingOut => Severity::Odd,
            Self::Scaling => Severity::Busy,
            Self::Steady => Severity::Good,
            Self::NoGroup => Severity::Quiet,
        }
    }
}
