//! Temporary losses of rights: in two thirds of the worlds no copy may write Machines for seconds or minutes, from the
//! moment at which one has sent a mark. Deletions that are decided by then can be neither done nor undone, and that
//! mark may arrive when its Machine has another entry.

use http::{Method, request::Parts};

use crate::{
    chance::Chance,
    entropy::{Nanos, SECOND},
    faults::{Decision, RequestFault},
    operator,
};

/// The time for which Cluster API stays down after the rights are back.
const LONGER: Nanos = 45 * SECOND;

/// A time without the right to write Machines.
#[derive(Clone, Debug)]
struct Loss {
    ordinal: u64,
    /// The time from which the first mark begins it.
    from: Nanos,
    lasts: Nanos,
    /// True if that must be the mark of a Machine that was named by hand, in a world whose people repeat failed
    /// deletes.
    by_hand: bool,
    /// The fault of that mark.
    first: Option<RequestFault>,
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
                    // The mark arrives when the right is back.
                    1 | 2 if is_short => Some(RequestFault::Late(lasts + draw.u64(1..40) * SECOND)),
                    _ => Some(RequestFault::LostAfter),
                };
                let is_late = matches!(first, Some(RequestFault::Late(_)));
                let by_hand = is_late && draw.u32(0..3) > 0 && operator::is_patient(chance);
                let restarts = if is_late { draw.u32(0..4) == 0 } else { draw.bool() };
                Loss { ordinal, from, lasts, by_hand, first, restarts, stops_controllers: draw.u32(0..3) > 0 }
            })
            .collect();
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.from));
        Self { losses, lost_until: 0 }
    }

    /// Returns the fault of a copy's request, which may have a waiting caller by hand.
    pub(crate) fn of_request(&mut self, parts: &Parts, by_hand: bool, at: Nanos, until: Nanos) -> Struck {
        let is_write = matches!(parts.method, Method::PATCH | Method::DELETE);
        if at >= until || !is_write || !parts.uri.path().contains("/machines/") {
            return Struck::default();
        }
        if at < self.lost_until {
            return Struck { fault: Some(RequestFault::Refused(403)), ..Struck::default() };
        }
        let is_due = |loss: &mut Loss| loss.from <= at && (by_hand || !loss.by_hand) && parts.method == Method::PATCH;
        let Some(loss) = self.losses.pop_if(is_due) else { return Struck::default() };
        let begins = Decision { what: "rights", actor: 0, ordinal: loss.ordinal };
        let restarts = loss.restarts.then_some(at + loss.lasts);
        let controllers_until = loss.stops_controllers.then_some(at + loss.lasts + LONGER);
        self.lost_until = at + loss.lasts;
        Struck { fault: loss.first, begins: Some(begins), restarts, controllers_until }
    }

    /// Removes the loss that has just begun.
    pub(crate) fn keep(&mut self) {
        self.lost_until = 0;
    }
}
