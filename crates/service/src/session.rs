//! The session of a workload cluster's autoscaler: its pins, its calls and its writes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rules::GroupId;
use tonic::{Code, Request, Status};

use super::{
    CallLogOptions, Calls,
    call_log::{Answered, CallLog},
    caller_of,
    metrics::Rpc,
    pace::Pace,
    pins::Pins,
    wire::{Subject, code_of},
};
use crate::listen::{Client, Connection};
use index::Index;
use scale::Scale;

/// The check that the index is fresh enough to rely on; the error says why it isn't. It is called for each Refresh.
type CheckFresh = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A receiver of calls for groups that the index doesn't have. It must be quick, and has no effect on the answer: a group
/// of another Cluster is answered as one that doesn't exist, so only the operator may learn the difference.
type UnknownGroups = Box<dyn Fn(&GroupId, Option<&Client>) + Send + Sync>;

/// What is kept for the autoscaler of one workload cluster, over all of its calls and connections: its pins, its last calls
/// and its writes.
pub struct Session {
    pub(super) index: Arc<Index>,
    pub(super) scale: Scale,
    check_fresh: CheckFresh,
    pub(super) call_log: CallLog,
    calls: Calls,
    pins: Pins,
    /// True in a fleet: clients are named by their certificate there.
    is_one_of_many: bool,
    unknown_groups: Option<UnknownGroups>,
    pub(super) pace: Pace,
}

impl Session {
    /// Creates a session that reads `index` and writes through `scale`.
    pub fn new(
        index: Arc<Index>,
        scale: Scale,
        check_fresh: impl Fn() -> Result<(), String> + Send + Sync + 'static,
        log: CallLogOptions,
    ) -> Self {
        Self {
            index,
            scale,
            check_fresh: Box::new(check_fresh),
            call_log: CallLog::new(log),
            calls: Calls::default(),
            pins: Pins::default(),
            is_one_of_many: false,
            unknown_groups: None,
            pace: Pace::default(),
        }
    }

    /// Makes it a session of a fleet: calls that come too fast wait, and `unknown_groups` hears of calls for groups that
    /// the index doesn't have. Writes are recorded with the URI of the client's certificate, its serial number and the
    /// client's address.
    pub fn of_one_of_many(self, unknown_groups: impl Fn(&GroupId, Option<&Client>) + Send + Sync + 'static) -> Self {
        let unknown_groups: Option<UnknownGroups> = Some(Box::new(unknown_groups));
        Self { is_one_of_many: true, pace: Pace::of_one_of_many(), unknown_groups, ..self }
    }

    /// Returns the last calls of Cluster Autoscaler.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the writes.
    pub fn scale(&self) -> &Scale {
        &self.scale
    }

    /// Logs an answer, and reports a call for a group that the index doesn't have.
    #[cold]
    pub(super) fn record<Q: Subject, T>(
        &self,
        rpc: Rpc,
        request: &Request<Q>,
        result: &Result<T, Status>,
        took: Duration,
    ) {
        let answered = Answered {
            rpc,
            code: code_of(result),
            caller: "",
            took,
            subject: request.get_ref().subject(),
            message: result.as_ref().err().map(Status::message).unwrap_or_default(),
            metadata: request.metadata(),
        };
        self.call_log.record(answered, Instant::now());
        if code_of(result) == Code::NotFound
            && let Some(group) = GroupId::parse(request.get_ref().subject())
        {
            self.report_unknown(&group, caller_of(request).map(Connection::client));
        }
    }

    /// Reports a call for a group that the index doesn't have, if somebody wants to know.
    pub(super) fn report_unknown(&self, group: &GroupId, client: Option<&Client>) {
        if let Some(unknown_groups) = &self.unknown_groups {
            unknown_groups(group, client);
        }
    }

    /// Returns the writes on behalf of a client.
    pub(super) fn scale_for(&self, client: Option<&Client>) -> Scale {
        let name = |client: &Client| if self.is_one_of_many { client.certified() } else { client.name.clone() };
        self.scale.requested_by(client.map(name))
    }

    /// Begins a loop of the caller.
    pub(super) fn begin_loop(&self, caller: Option<&Connection>) -> Result<proto::RefreshResponse, Status> {
        self.call_log.sum_up(Instant::now());
        self.scale.sum_up_refusals();
        let result = self.refresh(caller);
        self.calls.refreshed(result.as_ref().err().map(|status| status.message().to_owned()), caller);
        result
    }

    fn check_freshness(&self) -> Result<(), Status> {
        (self.check_fresh)().map_err(|why| Status::unavailable(format!("not ready: {why}")))
    }

    pub(super) fn refresh(&self, caller: Option<&Connection>) -> Result<proto::RefreshResponse, Status> {
        self.check_freshness()?;
        if self.may_pin(caller) {
            let _pinning = self.pins.lock();
            self.pin(caller);
        }
        Ok(proto::RefreshResponse {})
    }

    /// Returns false for a read-only client, whose calls must change nothing during another caller's loop.
    fn may_pin(&self, caller: Option<&Connection>) -> bool {
        let is_read_only = caller.is_some_and(|caller| caller.client().is_read_only);
        !is_read_only || !self.index.is_pinned()
    }

    fn pin(&self, caller: Option<&Connection>) {
        self.index.refresh();
        self.pins.record(caller, Instant::now());
    }

    /// Pins for a caller in the middle of a loop if nothing is pinned, or if no caller in a loop relies on the pins.
    ///
    /// # Errors
    /// If nothing is pinned, and the index isn't fresh. Old pins are better than none.
    pub(super) fn pin_if_unused(&self, caller: Option<&Connection>) -> Result<(), Status> {
        let must_pin =
            || !self.index.is_pinned() || (self.may_pin(caller) && self.pins.must_pin(caller, Instant::now()));
        if !must_pin() {
            return Ok(());
        }
        // Another caller may have pinned meanwhile, on another thread.
        let _pinning = self.pins.lock();
        if !must_pin() {
            return Ok(());
        }
        match self.check_freshness() {
            Ok(()) => self.pin(caller),
            Err(_) if self.index.is_pinned() => {}
            Err(status) => return Err(status),
        }
        Ok(())
    }
}
