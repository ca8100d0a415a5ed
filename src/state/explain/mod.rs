//! The report on a node group, and where each value of it comes from: as values for programs ([`report`]) and as lines for
//! people ([`rows`]). The command `explain` prints it and the status page shows it, so that both say the same. It shows
//! what the index says: no rule is decided here, and no cluster is asked.

pub(crate) mod amount;
mod convert;
mod pod;
pub(crate) mod report;
pub(crate) mod rows;

pub(crate) use self::{
    convert::{Explained, explained},
    pod::Pod,
};
