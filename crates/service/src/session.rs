//! The session of a workload cluster's autoscaler: answers from the index, and writes. A read is a query of the index, without
//! an await or an API call.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use prost_types::Any;
use rules::{GroupId, rollout};
use tonic::{Code, Request, Status};

use super::{
    CallLogOptions, Calls,
    call_log::{Answered, CallLog},
    caller_of,
    metrics::Rpc,
    options,
    pace::Pace,
    pins::Pins,
    pricing::{self, Moment},
    wire::{self, Subject, code_of, group_to_wire, instance_to_wire, unknown},
};
use crate::listen::{Client, Connection};
use index::{Index, NodeQuery};
use scale::Scale;

/// The check that the index is fresh enough to rely on; the error says why it isn't. It is called for each Refresh.
type CheckFresh = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A receiver of calls for groups that the index doesn't have. It must be quick, and has no effect on the answer: a group
/// of another Cluster is answered as one that doesn't exist, so only the operator may learn the difference.
type UnknownGroups = Box<dyn Fn(&GroupId, Option<&Client>) + Send + Sync>;

/// What is kept for the autoscaler of one workload cluster, over all of its calls and connections: its pins, its last calls
/// and its writes.
pub struct Session {
    index: Arc<Index>,
    scale: Scale,
    check_fresh: CheckFresh,
    pub(super) call_log: CallLog,
    calls: Calls,
    pins: Pins,
    /// True if there are others: clients are called by their certificate, not by the name that let them in.
    is_one_of_many: bool,
    unknown_groups: Option<UnknownGroups>,
    pub(super) pace: Pace,
}

impl Session {
    /// Returns answers that are read from `index` and written through `scale`. Calls are logged and traced.
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

    /// Returns those of one of many Clusters: calls that come too fast wait, and `unknown_groups` hears of calls for groups
    /// that the index doesn't have. Writes are recorded with the URI of the client's certificate, which is its identity,
    /// its serial number and the client's address.
    #[must_use]
    pub fn of_one_of_many(self, unknown_groups: impl Fn(&GroupId, Option<&Client>) + Send + Sync + 'static) -> Self {
        let unknown_groups: Option<UnknownGroups> = Some(Box::new(unknown_groups));
        Self { is_one_of_many: true, pace: Pace::of_one_of_many(), unknown_groups, ..self }
    }

    /// Returns the last calls of Cluster Autoscaler.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the writes.
    #[must_use]
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
        let result = self.refresh_now(caller);
        self.calls.refreshed(result.as_ref().err().map(|status| status.message().to_owned()), caller);
        result
    }

    fn check_freshness(&self) -> Result<(), Status> {
        (self.check_fresh)().map_err(|why| Status::unavailable(format!("not ready: {why}")))
    }

    pub(super) fn refresh_now(&self, caller: Option<&Connection>) -> Result<proto::RefreshResponse, Status> {
        self.check_freshness()?;
        if self.may_pin(caller) {
            let _turn = self.pins.turn();
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
    fn pin_if_unused(&self, caller: Option<&Connection>) -> Result<(), Status> {
        let must_pin =
            || !self.index.is_pinned() || (self.may_pin(caller) && self.pins.must_pin(caller, Instant::now()));
        if !must_pin() {
            return Ok(());
        }
        // Another caller may have pinned meanwhile, on another thread.
        let _turn = self.pins.turn();
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

    pub(super) fn groups_now(&self, caller: Option<&Connection>) -> Result<proto::NodeGroupsResponse, Status> {
        // Cluster Autoscaler takes an error for an empty list, which is right only before anything was pinned.
        self.pin_if_unused(caller)?;
        Ok(proto::NodeGroupsResponse { node_groups: self.index.groups().iter().map(group_to_wire).collect() })
    }

    pub(super) fn group_for_node_now(
        &self,
        node: Option<&proto::ExternalGrpcNode>,
        caller: Option<&Connection>,
    ) -> proto::NodeGroupForNodeResponse {
        // Before its first Refresh, Cluster Autoscaler asks for the groups of Nodes with its taints. While nothing can
        // be pinned, no Node belongs to a group.
        let _ = self.pin_if_unused(caller);
        let pinned = node.and_then(|node| {
            self.index.group_of_node(NodeQuery {
                name: &node.name,
                provider_id: &node.provider_id,
                annotations: &node.annotations,
            })
        });
        // An empty id makes the caller ignore the Node; an error would stop the caller's whole loop.
        proto::NodeGroupForNodeResponse {
            node_group: Some(pinned.map_or_else(proto::NodeGroup::default, |group| group_to_wire(&group))),
        }
    }

    pub(super) fn target_size_now(&self, id: &str) -> Result<proto::NodeGroupTargetSizeResponse, Status> {
        let target_size = GroupId::parse(id).and_then(|id| self.index.target_size(&id)).ok_or_else(|| unknown(id))?;
        Ok(proto::NodeGroupTargetSizeResponse { target_size })
    }

    pub(super) fn instances_now(&self, id: &str) -> Result<proto::NodeGroupNodesResponse, Status> {
        let instances = GroupId::parse(id).and_then(|id| self.index.instances(&id)).ok_or_else(|| unknown(id))?;
        Ok(proto::NodeGroupNodesResponse { instances: instances.into_iter().map(instance_to_wire).collect() })
    }

    pub(super) fn template_now(&self, id: &str) -> Result<proto::NodeGroupTemplateNodeInfoResponse, Status> {
        let served = GroupId::parse(id).and_then(|id| self.index.served(&id)).ok_or_else(|| unknown(id))?;
        wire::answer(&served).ok_or_else(|| {
            Status::unimplemented(format!(
                "node group {id} has no template: set its cpu and memory capacity annotations, or use an \
                 infrastructure template with status.capacity"
            ))
        })
    }

    pub(super) fn options_now(
        &self,
        request: &proto::NodeGroupAutoscalingOptionsRequest,
    ) -> Result<proto::NodeGroupAutoscalingOptionsResponse, Status> {
        let id = GroupId::parse(&request.id).ok_or_else(|| unknown(&request.id))?;
        let options = self.index.options(&id).ok_or_else(|| unknown(&request.id))?;
        // Cluster Autoscaler drains a Node before it requests the deletion. These options keep it from choosing a Node
        // that can't be deleted.
        let held = self.scale.is_read_only().then(|| rollout::hold(&options));
        let (defaults, overrides) = (request.defaults.as_ref(), held.as_ref().unwrap_or(&options));
        // Otherwise a Node that is starting would count as unready, and Pods that wait for it would get another one.
        let can_wait = options::resets_startup_time(defaults) && options::can_wait(overrides);
        if can_wait && self.index.has_starting_node(&id) {
            return Ok(proto::NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options: None });
        }
        Ok(proto::NodeGroupAutoscalingOptionsResponse {
            // Options replace all of the caller's defaults, and reset those that the protocol can't carry to zero, so
            // the answer has none if nothing is overridden.
            node_group_autoscaling_options: options::overrides_anything(defaults, overrides)
                .then(|| options::override_defaults(defaults, overrides)),
        })
    }

    pub(super) fn node_price_now(
        &self,
        request: &proto::PricingNodePriceRequest,
    ) -> Result<proto::PricingNodePriceResponse, Status> {
        let unset = proto::ExternalGrpcNode::default();
        let node = request.node.as_ref().unwrap_or(&unset);
        let query = NodeQuery { name: &node.name, provider_id: &node.provider_id, annotations: &node.annotations };
        let price = self.index.node_price(query, &node.labels).map_err(|error| pricing::status_of(&error))?;
        let start = Moment { new: request.start_timestamp.as_ref(), old: request.start_time.as_ref() };
        let end = Moment { new: request.end_timestamp.as_ref(), old: request.end_time.as_ref() };
        Ok(proto::PricingNodePriceResponse { price: price.per_hour() * pricing::hours(start, end)? })
    }

    pub(super) fn pod_price_now(
        &self,
        request: &proto::PricingPodPriceRequest,
    ) -> Result<proto::PricingPodPriceResponse, Status> {
        let prices = self.index.unit_prices().map_err(|error| pricing::status_of(&error))?;
        let start = Moment { new: request.start_timestamp.as_ref(), old: request.start_time.as_ref() };
        let end = Moment { new: request.end_timestamp.as_ref(), old: request.end_time.as_ref() };
        let hours = pricing::hours(start, end)?;
        let requests = pricing::requests(&request.pod_bytes, &request.pod)?;
        Ok(proto::PricingPodPriceResponse { price: prices.per_hour(&requests) * hours })
    }

    pub(super) fn gpu_types_now(&self) -> proto::GetAvailableGpuTypesResponse {
        let gpu_types: HashMap<_, _> =
            self.index.gpu_types().into_iter().map(|gpu_type| (gpu_type, Any::default())).collect();
        proto::GetAvailableGpuTypesResponse { gpu_types }
    }
}
