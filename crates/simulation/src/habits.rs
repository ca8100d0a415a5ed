//! The habits of a world's controllers and Machines.

use std::fmt;

/// The behaviour of controllers and Machines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum Habits {
    /// Views lag by milliseconds, writes succeed, and every Machine joins.
    #[default]
    Calm,
    /// As the seed says: views that lag by up to 40 s, writes that fail, restarts, Machines that never join or hang.
    Any,
}

impl fmt::Display for Habits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calm => "calm",
            Self::Any => "any",
        })
    }
}
