//! The report on a node group, with the source of each value: as values for programs ([`report`]) and as lines for
//! people ([`rows`]). The command `explain` and the status page show the same report, so that they agree. The report
//! shows the content of the index. This module must implement no rule and query no cluster.

pub mod amount;
mod convert;
pub mod report;
pub mod rows;

pub use self::{
    convert::{Explained, explained},
    report::Pod,
};
