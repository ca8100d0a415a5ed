//! Versions of Cluster Autoscaler, and the protocol fields that they know.

use std::fmt;

/// A version of Cluster Autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The 36 of 1.36.1.
    pub minor: u32,
    /// The 1 of 1.36.1.
    pub patch: u32,
}

impl Version {
    /// Creates version 1.`minor`.`patch`.
    #[must_use]
    pub const fn new(minor: u32, patch: u32) -> Self {
        Self { minor, patch }
    }

    /// Parses a version such as `1.36.0-beta.1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix("1.")?.split('.');
        let minor = numbers.next()?.parse().ok()?;
        let patch = numbers.next()?;
        let patch = patch.split(['-', '+']).next()?.parse().ok()?;
        Some(Self { minor, patch })
    }

    /// Returns true if this version sends and reads the fields that embed Kubernetes' own messages for durations and
    /// Nodes.
    #[must_use]
    pub fn knows_old_fields(self) -> bool {
        self < Self::new(35, 0)
    }

    /// Returns true if this version sends and reads the fields that replace the old ones.
    #[must_use]
    pub fn knows_new_fields(self) -> bool {
        self >= Self::new(34, 2)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}
