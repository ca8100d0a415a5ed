//! The scenarios: what a user expects, and how it is judged.

mod failures;
mod faults;
mod features;
mod load;
mod places;
mod removals;

use std::{fmt::Display, time::Duration};

use anyhow::Result;
use e2e::autoscaling::Settings;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use serde_json::{Value, json};

use crate::stage::Stage;

/// A situation that both providers are put in.
#[derive(Serialize)]
pub(crate) struct Scenario {
    /// Its name, to select it by.
    pub(crate) name: &'static str,
    /// What a user expects.
    pub(crate) expected: &'static str,
    /// The first minor version of Cluster Autoscaler that has what it is about, 0 for all.
    pub(crate) since: u32,
    /// The public issues about it: numbers in kubernetes/autoscaler, others with their repository.
    pub(crate) issues: &'static [&'static str],
    /// True if it needs all processors, so that no other runs beside it.
    #[serde(skip)]
    pub(crate) alone: bool,
    #[serde(skip)]
    pub(crate) body: for<'a> fn(&'a Stage) -> LocalBoxFuture<'a, Result<Outcome>>,
}

/// The end of a scenario. An error instead says that the scenario couldn't be run.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// True if what is expected happened.
    pub(crate) good: bool,
    /// What was seen.
    pub(crate) seen: String,
}

impl Outcome {
    pub(crate) fn good(seen: impl Into<String>) -> Self {
        Self { good: true, seen: seen.into() }
    }

    pub(crate) fn bad(seen: impl Into<String>) -> Self {
        Self { good: false, seen: seen.into() }
    }

    /// Judges a wait by its time.
    pub(crate) fn after<T>(what: impl Display, waited: Result<(T, Duration), String>) -> Self {
        match waited {
            Ok((_, took)) => Self::good(format!("{what} after {} s", took.as_secs())),
            Err(last) => Self::bad(last),
        }
    }
}

/// The time within which a Node for a Pod is expected: Machines take a second, a loop one or two.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Settings with which no Node is removed.
pub(crate) fn growing() -> Settings {
    Settings { unneeded: Duration::from_secs(3600), ..Settings::default() }
}

/// Returns the capacity of a Node with this CPU.
pub(crate) fn capacity(cpu: &str) -> Value {
    json!({ "cpu": cpu, "memory": "16Gi", "pods": "110" })
}

macro_rules! scenario {
    ($name:literal, $body:path, [$($issue:literal),*], $expected:literal $(, since $since:literal)?) => {
        Scenario { alone: false, ..scenario!(alone $name, $body, [$($issue),*], $expected $(, since $since)?) }
    };
    (alone $name:literal, $body:path, [$($issue:literal),*], $expected:literal $(, since $since:literal)?) => {
        Scenario {
            name: $name,
            expected: $expected,
            since: 0 $(+ $since)?,
            issues: &[$($issue),*],
            alone: true,
            body: |stage| Box::pin($body(stage)),
        }
    };
}

/// All of them, in the order of the table.
pub(crate) static SCENARIOS: &[Scenario] = &[
    scenario!("bad-annotation", faults::bad_annotation, [], "a node group with a typo in its min size stops no other"),
    scenario!(
        "missing-template",
        faults::missing_template,
        ["5912", "6490"],
        "a node group whose infrastructure template is gone stops no other"
    ),
    scenario!(
        "forbidden-template",
        faults::forbidden_template,
        ["5912"],
        "a node group whose infrastructure template may not be read stops no other"
    ),
    scenario!(
        "plural-of-template",
        faults::irregular_plural,
        ["8330"],
        "a kind of template with an irregular plural scales from zero by its `status.capacity`"
    ),
    scenario!(
        "remembered",
        places::remembered,
        ["kubermatic/machine-controller#1618"],
        "a node group whose capacity nothing states has had a Node, and scales from zero after a restart"
    ),
    scenario!("integer-capacity", faults::integer_capacity, [], "`status.capacity` with an integer scales from zero"),
    scenario!(
        "template-labels",
        places::template_labels,
        ["8712"],
        "from zero, a Pod finds the label that Cluster API will propagate to the Node"
    ),
    scenario!(
        "template-taints",
        places::template_taints,
        ["9239"],
        "from zero, a node group with a taint isn't grown for a Pod that doesn't tolerate it"
    ),
    scenario!(
        "stock-out",
        failures::stock_out,
        ["5417"],
        "a node group without capacity is left for another, before the provision time is over"
    ),
    scenario!(
        "hanging-deletion",
        failures::hanging_deletion,
        ["7928"],
        "a Machine that hangs in deletion stops no other node group"
    ),
    scenario!(
        "failed-machine",
        failures::failed_with_provider_id,
        ["7950", "7976"],
        "a Machine that failed after it got its providerID stops no other node group"
    ),
    scenario!(
        "failed-creation",
        failures::failed_creation,
        ["deckhouse/deckhouse#18154", "gardener/autoscaler#396"],
        "a node group whose Machines can't be made is left for another after the provision time of 20 s"
    ),
    scenario!(
        "dead-at-minimum",
        failures::dead_at_minimum,
        ["10059"],
        "a Machine that never joins is replaced at the min size too"
    ),
    scenario!(
        "dead-at-minimum-by-force",
        failures::dead_at_minimum_by_force,
        ["10059"],
        "the same with `--force-delete-unregistered-nodes`",
        since 32
    ),
    scenario!(
        "starting-nodes",
        failures::starting_nodes,
        ["10245"],
        "one Node is bought for one Pod, in a node group with options of its own too"
    ),
    scenario!("load-gone", failures::load_gone, ["9120"], "a scale-up that failed is taken back when its Pod is gone"),
    scenario!(
        "fifty-removals",
        removals::fifty_at_once,
        ["3104", "4634", "7872"],
        "fifty idle Nodes go, and no busy one"
    ),
    scenario!(
        "repeated-removals",
        removals::repeated,
        ["4634", "7872"],
        "Nodes whose deletion takes long are asked for again by a new Cluster Autoscaler, and no busy one goes"
    ),
    scenario!(
        "batched-removals",
        removals::batched,
        [],
        "`--node-deletion-batcher-interval` and `--max-scale-down-parallelism`: idle Nodes go, and no busy one",
        since 33
    ),
    scenario!(
        "rollout",
        removals::rollout,
        ["8494"],
        "in a rollout idle Nodes are removed without costing a new Machine"
    ),
    scenario!(
        "deleted-by-others",
        removals::deleted_by_others,
        [],
        "Machines that somebody deletes while a node group grows come again"
    ),
    scenario!(
        "forms-of-provider-id",
        removals::forms_of_provider_id,
        ["kubernetes-sigs/cluster-api-provider-azure#1292"],
        "a busy Node stays although its Machine's providerID has another slash, and goes when it is idle"
    ),
    scenario!(
        "overhead",
        places::overhead,
        ["2809"],
        "no Node is bought for a Pod that fits its capacity but not its allocatable"
    ),
    scenario!("paused", places::paused, ["9345"], "Nodes of a paused Cluster aren't removed"),
    scenario!("two-namespaces", places::two_namespaces, [], "node groups of the same name in two namespaces both grow"),
    scenario!(
        "size-put-back",
        places::size_put_back,
        ["kubernetes-sigs/cluster-api#7293"],
        "a size that somebody keeps putting back stops no other node group"
    ),
    scenario!(
        "refusing-policy",
        places::refusing_policy,
        [],
        "a node group whose size a policy refuses to change is left for another"
    ),
    scenario!(
        "switch-and-back",
        places::switch_and_back,
        [],
        "a switch from in-tree and back removes nothing, and the node group grows before, between and after"
    ),
    scenario!(
        "balance",
        features::balance,
        [],
        "`--balance-similar-node-groups` spreads four Pods over two node groups"
    ),
    scenario!(
        "parallel-scale-up",
        features::parallel,
        [],
        "`--parallel-scale-up` does so too",
        since 33
    ),
    scenario!(
        "salvo-scale-up",
        features::salvo,
        [],
        "`--salvo-scale-up` grows two node groups for two Pods",
        since 36
    ),
    scenario!(
        "priority-expander",
        features::priority_expander,
        [],
        "the priority expander chooses by the names of node groups"
    ),
    scenario!("price-expander", features::price_expander, [], "the price expander chooses the cheaper node group"),
    scenario!(
        "capacity-buffer",
        features::capacity_buffer,
        [],
        "a CapacityBuffer of two Pods makes a node group grow by two",
        since 35
    ),
    scenario!(
        "capacity-quota",
        features::capacity_quota,
        [],
        "a CapacityQuota of two Nodes leaves the third Pod pending",
        since 36
    ),
    scenario!(
        "provisioning-request",
        features::provisioning_request,
        [],
        "a ProvisioningRequest for two Pods, best effort atomic, is provisioned",
        since 33
    ),
    scenario!(
        "slow-api-server",
        load::slow_api_server,
        [],
        "a Pod gets a Node in one of 20 node groups while each request takes 200 ms longer"
    ),
    scenario!(
        "throttling-api-server",
        load::throttling_api_server,
        [],
        "the same while ten requests a second are answered, and the others with 429"
    ),
    scenario!(
        "api-server-restart",
        load::api_server_restart,
        [],
        "a node group grows after the management API server restarted"
    ),
    scenario!(
        alone "two-hundred-nodes",
        load::two_hundred_nodes,
        [],
        "200 Pods get a Node each in ten node groups, and the Nodes go with them"
    ),
    scenario!(
        alone "idle-loop",
        load::idle_loop_unlimited,
        ["6333", "6784"],
        "an idle loop over 200 node groups with 25 Machines each makes no request to the management cluster"
    ),
    scenario!(
        alone "idle-loop-at-default-qps",
        load::idle_loop,
        ["6333", "6784"],
        "the same with Cluster Autoscaler's default limit of 5 requests a second"
    ),
    scenario!(
        alone "thousand-nodes",
        load::thousand_nodes,
        [],
        "1,000 Pods get a Node each in ten node groups, and the Nodes go with them"
    ),
];
