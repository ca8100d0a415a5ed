//! Metrics of the informers and of the index, computed on each scrape. A scrape must never block the index's writer
//! for long: the index is copied group by group, and evaluated afterwards.

mod families;
mod groups;
mod informers;
#[cfg(test)]
mod tests;

pub use self::{
    groups::{GroupMetrics, GroupSeries},
    informers::InformerMetrics,
};
