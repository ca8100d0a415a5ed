//! Versions of Cluster Autoscaler, and which fields they know.

use std::fmt;

/// A version of Cluster Autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// As 36 of 1.36.1.
    pub minor: u32,
    /// As 1 of 1.36.1.
    pub patch: u32,
}

impl Version {
    /// Of 1.`minor`.`patch`.
    #[must_use]
    pub const fn new(minor: u32, patch: u32) -> Self {
        Self { minor, patch }
    }

    /// From a text such as `1.36.0-beta.1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix("1.")?.split('.');
        let minor = numbers.next()?.parse().ok()?;
        let patch = numbers.next()?;
        let patch = patch.split(['-', '+']).next()?.parse().ok()?;
        Some(Self { minor, patch })
    }

    /// Returns true if it sends and reads the durations and Nodes that embed Kubernetes' own messages.
    #[must_use]
    pub fn knows_old_fields(self) -> bool {
        self < Self::new(35, 0)
    }

    /// Returns true if it sends and reads the fields that took their place.
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
