//! Temporary losses of rights: in two thirds of the worlds no copy may write Machines, or no copy may write sizes, for
//! seconds or minutes, from the moment at which one has sent a deletion. That deletion may arrive when it was given up,
//! and the size that was tried before it may be refused.

use http::{Method, request::Parts};

use crate::{
    chance::Chance,
    entropy::{Nanos, SECOND},
    faults::{Decision, RequestFault},
    ledger::is_dry_run,
    operator,
};

/// The time for which Cluster API stays down after the rights are back.
const LONGER: Nanos = 45 * SECOND;

/// A time without the right to write Machines.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one part of the loss")]
struct Loss {
    ordinal: u64,
    /// The time from which the first deletion or mark begins it.
    from: Nanos,
    lasts: Nanos,
    /// True if that must be of a Machine that was named by hand, in a world whose people repeat failed deletes.
    by_hand: bool,
    /// The fault of that deletion.
    first: Option<RequestFault>,
    /// True if sizes can't be written, rather than Machines.
    of_sizes: bool,
    /// True if copies are restarted with their new rights.
    restarts: bool,
    /// True if Cluster API is down during the loss and a little longer, as in an upgrade of a whole cluster.
    stops_controllers: bool,
}

/// The effects of a loss of rights on a request.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    pub(crate) fault: Option<RequestFault>,
    /// The loss that begins with it.
    pub(crate) begins: Option<Decision>,
    /// The time at which copies are killed for it.
    pub(crate) restarts: Option<Nanos>,
    /// The time until which Cluster API is down for it.
    pub(crate) controllers_until: Option<Nanos>,
}

/// The losses of one world.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    /// The future losses, the next one last.
    losses: Vec<Loss>,
    /// The time until which the right is lost.
    lost_until: Nanos,
    is_of_sizes: bool,
}

impl Rights {
    /// Draws the losses up to a time.
    pub(crate) fn new(chance: Chance, until: Nanos) -> Self {
        let mut draw = chance.of("rights", 0, 0);
        let count = if draw.u32(0..3) > 0 { draw.u64(1..=4) } else { 0 };
        let mut losses: Vec<_> = (0..count)
            .map(|ordinal| {
                let mut draw = chance.of("loss of rights", 0, ordinal);
                let from = draw.u64(0..until.max(1));
                let is_short = draw.bool();
                let lasts = if is_short { draw.u64(5..30) } else { draw.u64(30..300) } * SECOND;
                let first = match draw.u32(0..4) {
                    0 => None,
                    // The deletion arrives when the right is back.
                    1 | 2 if is_short => Some(RequestFault::Late(lasts + draw.u64(1..40) * SECOND)),
                    _ => Some(RequestFault::LostAfter),
                };
                let is_late = matches!(first, Some(RequestFault::Late(_)));
                let by_hand = is_late && draw.u32(0..3) > 0 && operator::is_patient(chance);
                let restarts = if is_late { draw.u32(0..4) == 0 } else { draw.bool() };
                let stops_controllers = draw.u32(0..3) > 0;
                let of_sizes = draw.u32(0..3) == 0;
                let first = first.filter(|_| !of_sizes);
                Loss { ordinal, from, lasts, by_hand, first, of_sizes, restarts, stops_controllers }
            })
            .collect();
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.from));
        Self { losses, lost_until: 0, is_of_sizes: false }
    }

    /// Returns the fault of a copy's request, which may have a waiting caller by hand.
    pub(crate) fn of_request(&mut self, parts: &Parts, by_hand: bool, at: Nanos, until: Nanos) -> Struck {
        let is_write = matches!(parts.method, Method::PATCH | Method::DELETE);
        let (is_of_machine, is_of_size) =
            (parts.uri.path().contains("/machines/"), parts.uri.path().ends_with("/scale"));
        if at >= until || !is_write || !(is_of_machine || is_of_size) {
            return Struck::default();
        }
        if at < self.lost_until {
            let fault = (self.is_of_sizes == is_of_size).then_some(RequestFault::Refused(403));
            return Struck { fault, ..Struck::default() };
        }
        if !is_of_machine || is_dry_run(parts) {
            return Struck::default();
        }
        let is_due = |loss: &mut Loss| loss.from <= at && (by_hand || !loss.by_hand);
        let Some(loss) = self.losses.pop_if(is_due) else { return Struck::default() };
        let begins = Decision { what: "rights", actor: 0, ordinal: loss.ordinal };
        let restarts = loss.restarts.then_some(at + loss.lasts);
        let controllers_until = loss.stops_controllers.then_some(at + loss.lasts + LONGER);
        (self.lost_until, self.is_of_sizes) = (at + loss.lasts, loss.of_sizes);
        Struck { fault: loss.first, begins: Some(begins), restarts, controllers_until }
    }

    /// Returns true if the lost right is that to write sizes.
    pub(crate) fn is_of_sizes(&self) -> bool {
        self.is_of_sizes
    }

    /// Removes the loss that has just begun.
    pub(crate) fn keep(&mut self) {
        self.lost_until = 0;
    }
}
