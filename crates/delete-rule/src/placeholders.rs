//! The size decreases for replicas without a Machine: the placeholders of a request, and the replicas that a smaller
//! target size gives up.

use crate::{Bounds, GroupMachines, Log, Policy, Refusal, Rule, SizeError, Types, as_i64, size};

/// The part of a request that names no Machine, and isn't done yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placeholders {
    /// The placeholders of replicas.
    pub replicas: usize,
    /// The instances of a MachinePool.
    pub instances: usize,
    /// The size at the first decision, less the Machines for which it was lowered since.
    pub from: i32,
}

/// The two parts of a decrease of the target size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shrinking {
    /// The number of Machines without a Node that are to go.
    pub machines: usize,
    /// The number of further replicas, which have no Machine.
    pub others: usize,
}

impl<P: Policy> Rule<P> {
    /// Counts the placeholders of a group: the replicas that have no Machine, or one that is being deleted without its
    /// Node, less the wanted entries and `leaving`.
    pub fn placeholders<T: Types>(
        self,
        log: &Log<T>,
        replicas: i32,
        listed: &GroupMachines<T>,
        leaving: usize,
    ) -> usize {
        let wanted = if self.0.counts_by_log() { log.wanted() } else { 0 };
        let size = i64::from(replicas) - as_i64(wanted + leaving);
        listed.placeholders(size, |uid| self.leaves(log, uid))
    }

    /// Returns the size without the part of a request that names no Machine. `left` is the number of placeholders by a
    /// list that is newer than the view of the group. A placeholder for which the size came down in the meantime is
    /// done. If one has become a Machine, the whole request is refused.
    ///
    /// # Errors
    /// Fails if placeholders have become Machines, or if the size would be below the minimum.
    pub fn give_up<T: Types>(
        self,
        log: &Log<T>,
        replicas: i32,
        bounds: Bounds,
        left: usize,
        placeholders: Placeholders,
    ) -> Result<i32, Refusal<T>> {
        let left = left.min(placeholders.replicas);
        let came_down = usize::try_from(placeholders.from.saturating_sub(replicas)).unwrap_or_default();
        if placeholders.replicas - left > came_down {
            return Err(Refusal::Replaced { named: placeholders.replicas, left });
        }
        let fewer = left + placeholders.instances;
        // Wanted entries will lower the size as well.
        let promised = size::delete(replicas, log.wanted(), Bounds { min: 0, ..bounds });
        let size = promised.and_then(|size| size::delete(size, fewer, bounds));
        size.and_then(|_| size::delete(replicas, fewer, bounds)).map_err(Refusal::BelowMin)
    }

    /// Returns the size without `fewer` placeholders that a smaller target size gives up. It stays at or above the
    /// minimum and the number of Machines with a Node; `with_node` counts those of them that are in no log, and is only
    /// called if `fewer` isn't 0.
    ///
    /// # Errors
    /// Never fails: `fewer` is subtracted, so that the delta is negative.
    pub fn give_way<T: Types>(
        self,
        log: &Log<T>,
        replicas: i32,
        min: i32,
        fewer: usize,
        with_node: impl FnOnce() -> i32,
    ) -> Result<i32, SizeError> {
        match fewer {
            0 => Ok(replicas),
            // Wanted entries will lower the size as well.
            fewer => {
                let wanted = as_i32(log.wanted());
                let with_node = with_node().saturating_add(wanted);
                size::decrease(replicas, -as_i32(fewer), with_node, min.saturating_add(wanted))
            }
        }
    }

    /// Divides a decrease of the target size into Machines and other replicas. A Machine with a Node stays; `with_node`
    /// of them are in no log. Of the `waiting` Machines without a Node, those that exceed the target are deleted.
    ///
    /// # Errors
    /// Fails if `delta` isn't negative.
    pub fn shrink<T: Types>(
        self,
        log: &Log<T>,
        replicas: i32,
        min: i32,
        delta: i32,
        (with_node, waiting): (i32, usize),
    ) -> Result<Shrinking, SizeError> {
        // Wanted entries will lower the size as well.
        let size = replicas.saturating_sub(as_i32(log.wanted()));
        let target = size::decrease(size, delta, with_node, min)?;
        let fewer = usize::try_from(size.saturating_sub(target)).unwrap_or_default();
        let staying = usize::try_from(target.saturating_sub(with_node)).unwrap_or_default();
        let machines = waiting.saturating_sub(staying).min(fewer);
        Ok(Shrinking { machines, others: fewer - machines })
    }
}

fn as_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
