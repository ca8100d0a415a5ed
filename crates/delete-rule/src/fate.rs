//! The fate of a size write whose response was lost, derived from the current object.

use crate::{Policy, Rule};

/// A version of a group's spec.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spec<'a, U> {
    /// The uid of the object, which changes if the object is recreated under the same name.
    pub uid: &'a U,
    /// The generation of the spec.
    pub generation: i64,
    /// The desired size.
    pub replicas: i32,
}

/// The last writer of the size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SizedBy {
    /// This command.
    This,
    /// Another writer.
    Another,
    /// The object doesn't say: no field manager owns the size. This is so for a size of 0 that was written through the
    /// scale subresource, and for an object whose `managedFields` somebody removed.
    Nobody,
}

/// The fate of a size write from one version to another whose response was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// The write was applied.
    Done,
    /// The write wasn't applied. If the API server still receives it later, its test of the object or size fails, or it
    /// sets the size that a retry would set.
    NotDone,
    /// Several writes were applied since, and this one may be among them.
    Unknown,
}

impl<P: Policy> Rule<P> {
    /// Decides the fate of a size write. The size's field manager shows if this write was the last one. If another
    /// write was, the generation shows the maximum number of writes since. If there was a single write and it set
    /// another size, it wasn't this one. If another writer set the same size, this write can only have been applied and
    /// then reverted, which takes three writes in all.
    pub fn fate<U: PartialEq>(self, seen: &Spec<'_, U>, now: &Spec<'_, U>, to: i32, sized_by: SizedBy) -> Fate {
        if now.uid != seen.uid || now.generation == seen.generation || !self.0.knows_own_writes() {
            return Fate::NotDone;
        }
        match (now.generation - seen.generation, now.replicas == to, sized_by) {
            (_, true, SizedBy::This) => Fate::Done,
            (1, false, _) | (1 | 2, true, SizedBy::Another) => Fate::NotDone,
            _ => Fate::Unknown,
        }
    }
}
