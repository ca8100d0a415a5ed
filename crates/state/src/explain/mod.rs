//! The report on a node group, with the source of each value: as values for programs ([`report`]) and as lines for
//! people ([`rows`]). The command `explain` prints it and the status page shows it, so that both agree. It shows the
//! content of the index, and must decide no rule and query no cluster.

pub mod amount;
mod convert;
mod pod;
pub mod report;
pub mod rows;

pub use self::{
    convert::{Explained, explained},
    pod::Pod,
};
