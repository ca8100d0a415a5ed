//! The callers that were denied, also those of Clusters that aren't served: nobody else shows that a Cluster lacks its
//! label, or that a certificate names none.

use std::{cmp::Reverse, collections::HashMap, net::IpAddr, time::Instant};

use parking_lot::Mutex;

use page::state::{DeniedCaller, DeniedCallers};
use service::listen::Client;

/// The maximum number of callers that are known. Of more, those are forgotten that were denied least lately.
const MOST: usize = 64;

/// The callers that were denied lately, and the number of their calls.
#[derive(Debug, Default)]
pub(super) struct Denied(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    calls: u64,
    callers: HashMap<String, Caller>,
}

/// A caller that was denied.
#[derive(Debug)]
struct Caller {
    peer: Option<IpAddr>,
    reason: String,
    calls: u64,
    last: Instant,
}

impl Denied {
    /// Adds a call of this client.
    pub(super) fn add(&self, client: Option<&Client>, reason: &str, now: Instant) {
        let mut all = self.0.lock();
        all.calls += 1;
        let Some(client) = client else { return };
        let identity = client.identity();
        if let Some(caller) = all.callers.get_mut(&*identity) {
            (caller.peer, caller.last) = (client.peer, now);
            caller.calls += 1;
            if caller.reason != reason {
                reason.clone_into(&mut caller.reason);
            }
            return;
        }
        if all.callers.len() >= MOST {
            let first = all.callers.iter().min_by_key(|(_, caller)| caller.last).map(|(identity, _)| identity.clone());
            if let Some(first) = first {
                all.callers.remove(&first);
            }
        }
        let caller = Caller { peer: client.peer, reason: reason.to_owned(), calls: 1, last: now };
        all.callers.insert(identity.into_owned(), caller);
    }

    /// Returns the callers, the last one first, and the number of all calls.
    pub(super) fn callers(&self) -> DeniedCallers {
        let all = self.0.lock();
        let now = Instant::now();
        let shown = |(identity, caller): (&String, &Caller)| DeniedCaller {
            identity: identity.clone(),
            peer: caller.peer,
            reason: caller.reason.clone(),
            denied_calls: caller.calls,
            last_ago: now.saturating_duration_since(caller.last).as_secs(),
        };
        let mut callers: Vec<_> = all.callers.iter().collect();
        callers.sort_by_key(|(_, caller)| Reverse(caller.last));
        DeniedCallers { calls: all.calls, callers: callers.into_iter().map(shown).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn client(name: &str) -> Client {
        Client { uri: Some(name.into()), ..Client::default() }
    }

    #[test]
    fn a_caller_that_is_denied_without_end_has_one_entry_with_its_last_reason() {
        let (denied, begun) = (Denied::default(), Instant::now());
        for second in 0..100 {
            denied.add(Some(&client("noisy")), "no label", begun + Duration::from_secs(second));
        }
        denied.add(Some(&client("quiet")), "no URI", begun + Duration::from_secs(50));
        denied.add(Some(&client("noisy")), "deleted", begun + Duration::from_secs(100));
        denied.add(None, "no certificate", begun);
        let DeniedCallers { calls, callers } = denied.callers();
        let shown: Vec<_> = callers.iter().map(|it| (&*it.identity, it.denied_calls, &*it.reason)).collect();
        assert_eq!((calls, shown), (103, vec![("noisy", 101, "deleted"), ("quiet", 1, "no URI")]));
    }

    #[test]
    fn of_many_callers_the_last_ones_are_known() {
        let (denied, begun) = (Denied::default(), Instant::now());
        for number in 0..1_000_u16 {
            denied.add(Some(&client(&number.to_string())), "no label", begun + Duration::from_secs(number.into()));
        }
        let DeniedCallers { calls, callers } = denied.callers();
        assert_eq!((calls, callers.len()), (1_000, MOST));
        assert_eq!((&*callers[0].identity, &*callers[MOST - 1].identity), ("999", "936"));
    }
}
