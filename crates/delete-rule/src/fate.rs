//! The fate of a size write whose answer was lost, by what the object is now.

use crate::{Policy, Rule};

/// A version of a group's spec.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spec<'a, U> {
    /// The object: one that was made anew under the same name is another.
    pub uid: &'a U,
    /// The version of its spec.
    pub generation: i64,
    /// The size asked for.
    pub replicas: i32,
}

/// The writer that has changed the size last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SizedBy {
    /// This command.
    This,
    /// Somebody else.
    Another,
    /// The object doesn't say: a size of 0 that was written as a Scale has no manager, nor has an object whose
    /// `managedFields` somebody has taken away.
    Nobody,
}

/// The fate of a size write from one version to another whose answer was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It was done.
    Done,
    /// If it arrives yet, it finds another object or size than it tests, or else what it is repeated for.
    NotDone,
    /// It may be among the writes since, and others came after it.
    Unknown,
}

impl<P: Policy> Rule<P> {
    /// The size's manager tells whether the last change of it was this one. Where it wasn't, the spec's generation tells the
    /// number of writes since, at most: none, or one, which isn't this one when it made another size. Where somebody
    /// else made the same size, this one would have had to be undone in between, which takes three.
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
