//! Faults of the server itself, shown below the table of groups, which may then be out of date.

use jiff::Timestamp;

use super::layout::{lay_out, shown};
use crate::state::{CheckState, State, TlsStanding};

/// Returns a table of checks that aren't in sync and of certificates that have expired or can't be loaded; `None` if
/// there are none.
pub(super) fn trouble(state: &State) -> Option<String> {
    let pending = state.checks.iter().filter(|check| check.state == CheckState::Pending);
    let pending = pending.map(|check| (shown(&check.name), check.reason.as_deref().map_or_else(String::new, shown)));
    let of_tls = state.tls.as_ref().map(|tls| certificates(tls, state.taken_at));
    let rows: Vec<_> = pending.chain(of_tls.into_iter().flatten()).map(|(what, why)| vec![what, why]).collect();
    (!rows.is_empty()).then(|| lay_out(&[("NOT AS IT SHOULD BE", false), ("WHY", false)], rows.into_iter()))
}

fn certificates(tls: &TlsStanding, now: Timestamp) -> Vec<(String, String)> {
    let expired = |what: &str, moment: Timestamp| {
        (moment < now).then(|| (what.to_owned(), format!("expired at {moment}: clients refuse it")))
    };
    let server = expired("server certificate", tls.server_until);
    let clients = tls.clients_until.and_then(|moment| expired("client authority", moment));
    let failing = tls.failing.as_deref().map(|why| ("TLS files".to_owned(), shown(why)));
    [server, clients, failing].into_iter().flatten().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::state::Check;

    #[test]
    fn a_server_that_is_well_has_no_trouble() {
        let tls = TlsStanding { server_until: "2027-01-01T00:00:00Z".parse().unwrap(), ..TlsStanding::default() };
        let check = |state| Check { name: "templates/x".to_owned(), state, reason: None };
        let state = State {
            taken_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            tls: Some(tls),
            checks: vec![check(CheckState::Ready), check(CheckState::Informational)],
            ..State::default()
        };
        assert_eq!(trouble(&state), None);
    }

    #[test]
    fn resources_that_are_not_in_sync_and_bad_certificates_are_listed_with_the_reason() {
        let state = State {
            taken_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            checks: vec![Check {
                name: "workload/nodes".to_owned(),
                state: CheckState::Pending,
                reason: Some("forbidden\u{1b}".to_owned()),
            }],
            tls: Some(TlsStanding {
                server_until: "2025-12-31T00:00:00Z".parse().unwrap(),
                clients_until: Some("2027-01-01T00:00:00Z".parse().unwrap()),
                failing: Some("tls.crt: no".to_owned()),
            }),
            ..State::default()
        };
        let expected = [
            "NOT AS IT SHOULD BE   WHY",
            "workload/nodes        forbidden\\u{1b}",
            "server certificate    expired at 2025-12-31T00:00:00Z: clients refuse it",
            "TLS files             tls.crt: no",
        ];
        assert_eq!(trouble(&state), Some(expected.join("\n") + "\n"));
    }
}
