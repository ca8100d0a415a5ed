//! Records the last call of Cluster Autoscaler and the connections that call, so that people can see that it calls and
//! who it is. Only Refresh counts: it comes once in every loop, and no other client sends it.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use crate::listen::{Client, Connection, KnownConnection};

/// The maximum number of connections that are known. One autoscaler calls; further ones come and go with restarts.
const CALLERS: usize = 8;

/// The last calls of Refresh. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<Last>>);

#[derive(Debug, Default)]
struct Last {
    refresh: Option<Refreshed>,
    /// The connections that have called, the last one at the end.
    callers: Vec<KnownConnection>,
}

/// A call of Refresh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refreshed {
    /// When it was answered.
    pub at: Instant,
    /// The reason why it was refused; `None` if it wasn't.
    pub refused: Option<String>,
}

impl Calls {
    /// Returns the last call of Refresh; `None` if none has come since the program started.
    pub fn last_refresh(&self) -> Option<Refreshed> {
        self.0.lock().refresh.clone()
    }

    /// Returns the clients that have called over connections which are open, the last one first.
    pub fn callers(&self) -> Vec<Client> {
        self.0.lock().callers.iter().rev().filter_map(KnownConnection::client).collect()
    }

    pub(super) fn refreshed(&self, refused: Option<String>, caller: Option<&Connection>) {
        let mut last = self.0.lock();
        last.refresh = Some(Refreshed { at: Instant::now(), refused });
        let Some(caller) = caller else { return };
        if last.callers.last().is_some_and(|known| known.is(caller)) {
            return;
        }
        last.callers.retain(|known| known.is_open() && !known.is(caller));
        if last.callers.len() == CALLERS {
            last.callers.remove(0);
        }
        last.callers.push(caller.known());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(name: &str) -> Connection {
        Connection::of(Client { name: name.into(), ..Client::default() })
    }

    fn names(calls: &Calls) -> Vec<String> {
        calls.callers().into_iter().map(|client| client.name.to_string()).collect()
    }

    #[test]
    fn the_callers_are_those_whose_connections_are_open_and_the_last_one_comes_first() {
        let (calls, one, other) = (Calls::default(), connection("one"), connection("other"));
        for caller in [&one, &other, &one, &one] {
            calls.refreshed(None, Some(caller));
        }
        assert_eq!(names(&calls), ["one", "other"]);
        drop(one);
        assert_eq!(names(&calls), ["other"]);
        calls.refreshed(Some("no".to_owned()), None);
        assert_eq!(calls.last_refresh().and_then(|last| last.refused).as_deref(), Some("no"));
    }

    #[test]
    fn a_caller_with_many_connections_takes_no_more_than_its_bound() {
        let calls = Calls::default();
        let connections: Vec<_> = (0..20).map(|number| connection(&number.to_string())).collect();
        for caller in &connections {
            calls.refreshed(None, Some(caller));
        }
        assert_eq!(names(&calls), ["19", "18", "17", "16", "15", "14", "13", "12"]);
    }
}
