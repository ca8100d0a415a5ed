//! The program as a value: the rule of its copies, and the bounds in which they run.

use crate::{bounds::Bounds, variant::Variant};

/// The program, whose steps the model executes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program<'a> {
    /// The rule, with or without some of its steps.
    pub(crate) rule: &'a Variant,
    /// The bounds of the search.
    pub(crate) bounds: &'a Bounds,
}
