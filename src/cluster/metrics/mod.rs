//! Metrics of the informers and of the picture, gathered when they are asked for. They must never hold up the picture's
//! writer: of a large fleet a copy is taken group by group, and worked out afterwards.

mod families;
mod groups;
mod informers;
#[cfg(test)]
mod tests;

pub use self::{
    groups::{GroupMetrics, GroupSeries},
    informers::InformerMetrics,
};
