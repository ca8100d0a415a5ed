//! What would an unmodified Cluster Autoscaler do with these manifests? It runs on Kubernetes APIs in memory, with this
//! program, simulated Cluster API controllers, and a scheduler.
//!
//! The answer is as good as what is simulated. What isn't must be named in the report, and must never be guessed.

mod fit;
mod flags;
mod groups;
mod live;
mod manifests;
mod notes;
mod observer;
mod process;
mod report;
mod run;
mod scheduler;
mod state;
mod workloads;

pub use live::Live;
pub use manifests::{Change, Named};
pub use report::{Answer, Ended, Entry, Excluded, Group, Pending, Removed, Report, SCHEMA_VERSION, clock, json, junit};
pub use run::{Options, Player, Progress, run};
