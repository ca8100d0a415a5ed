//! Who scales in a scenario: an unmodified Cluster Autoscaler where one is named, or a driver that asks what it asks.
//!
//! Both reach the program by a recorder, and what they ask and are answered is held to the same rules. Nothing here may know what the
//! program does, but what it promises on the wire.

pub mod binary;
mod choice;
pub mod driver;
mod fields;
mod idle;
pub mod loops;
mod pattern;
mod pods;
pub mod record;
pub mod rules;
pub mod running;
mod state;
mod transcript;

use std::time::Duration;

pub use binary::{Binary, Version};

/// Who scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Autoscaler {
    /// The driver, which plays this version.
    Driver(Version),
    /// Cluster Autoscaler.
    Binary(Binary),
}

impl Autoscaler {
    /// The version whose fields it sends and reads.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Driver(version) => *version,
            Self::Binary(binary) => binary.version,
        }
    }
}

/// Time from the end of a loop to the next one's start.
pub const PAUSE: Duration = Duration::from_secs(1);

/// How an autoscaler decides. Its times are Cluster Autoscaler's options, far shorter than anybody would have them.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a Node must be idle before it goes.
    pub unneeded: Duration,
    /// How long a Node may take to join, before it is given up.
    pub provision: Duration,
    /// Which of the groups that would do is chosen.
    pub expander: Expander,
}

impl Default for Settings {
    fn default() -> Self {
        Self { unneeded: Duration::from_secs(2), provision: Duration::from_secs(60), expander: Expander::LeastWaste }
    }
}

/// Which of the groups that would do is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expander {
    /// The one with the least left over.
    LeastWaste,
    /// The cheapest, by the provider's prices.
    Price,
}

impl Expander {
    /// As Cluster Autoscaler calls it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeastWaste => "least-waste",
            Self::Price => "price",
        }
    }
}
