//! Rights that are lost for a while: in two thirds of the worlds no copy may write Machines for seconds or minutes, from the moment at
//! which it has sent a mark. What is decided by then can be neither done nor taken back, and that mark may arrive when its
//! entry is another one.

use http::{Method, request::Parts};

use crate::{
    chance::Chance,
    entropy::{Nanos, SECOND},
    faults::{Decision, RequestFault},
    operator,
};

/// Cluster API is down for so long after the rights are there again.
const LONGER: Nanos = 45 * SECOND;

/// A time without the right to write Machines.
#[derive(Clone, Debug)]
struct Loss {
    ordinal: u64,
    /// It begins with the first mark from then on.
    from: Nanos,
    lasts: Nanos,
    /// Set if that is a mark of what somebody has named by hand, where there is somebody who asks again.
    by_hand: bool,
    /// The fault of that mark.
    first: Option<RequestFault>,
    /// Set if copies are restarted with their new rights.
    restarts: bool,
    /// Set if Cluster API is down meanwhile and for a little longer, as where somebody upgrades all of a cluster.
    stops_controllers: bool,
}

/// The fault of a request under a loss of rights.
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
    /// Those to come, the next one last.
    losses: Vec<Loss>,
    /// The right is lost until then.
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
                    // It arrives when the right is there again.
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

    /// The fault of a request that a copy sends, perhaps while somebody who calls by hand waits for its answer.
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

    /// The loss that has just begun is taken away.
    pub(crate) fn keep(&mut self) {
        self.lost_until = 0;
    }
}
