//! Autoscaling options on the wire: an answer with options replaces every default of the caller, so each default that
//! was sent is echoed, and both fields of every old and new pair are set.

use rules::{GoDuration, Overrides, rollout};

use proto::{MetaDuration, NodeGroupAutoscalingOptions};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Returns the caller's defaults, with the overrides applied.
pub(super) fn override_defaults(
    defaults: Option<&NodeGroupAutoscalingOptions>,
    overrides: &Overrides,
) -> NodeGroupAutoscalingOptions {
    let unset = NodeGroupAutoscalingOptions::default();
    let defaults = defaults.unwrap_or(&unset);
    let unneeded = pick(
        overrides.scale_down_unneeded_time,
        defaults.scale_down_unneeded_duration.as_ref(),
        defaults.scale_down_unneeded_time.as_ref(),
    );
    let unready = pick(
        overrides.scale_down_unready_time,
        defaults.scale_down_unready_duration.as_ref(),
        defaults.scale_down_unready_time.as_ref(),
    );
    let provision = pick(
        overrides.max_node_provision_time,
        defaults.max_node_provision_duration.as_ref(),
        defaults.max_node_provision_time.as_ref(),
    );
    NodeGroupAutoscalingOptions {
        scale_down_utilization_threshold: overrides
            .scale_down_utilization_threshold
            .unwrap_or(defaults.scale_down_utilization_threshold),
        scale_down_gpu_utilization_threshold: overrides
            .scale_down_gpu_utilization_threshold
            .unwrap_or(defaults.scale_down_gpu_utilization_threshold),
        // The old fields are set even when zero: Cluster Autoscaler up to 1.34.1 panics on a missing one.
        scale_down_unneeded_time: Some(MetaDuration { duration: unneeded }),
        scale_down_unready_time: Some(MetaDuration { duration: unready }),
        max_node_provision_time: Some(MetaDuration { duration: provision }),
        zero_or_max_node_scaling: defaults.zero_or_max_node_scaling,
        ignore_daemon_sets_utilization: overrides
            .ignore_daemon_sets_utilization
            .unwrap_or(defaults.ignore_daemon_sets_utilization),
        scale_down_unneeded_duration: Some(to_wire(unneeded)),
        scale_down_unready_duration: Some(to_wire(unready)),
        max_node_provision_duration: Some(to_wire(provision)),
        // Only callers that know these fields send them, and others ignore them.
        max_node_startup_duration: defaults.max_node_startup_duration.map(|default| {
            to_wire(overrides.max_node_startup_time.map_or_else(|| from_wire(&default), GoDuration::as_nanos))
        }),
        allow_non_atomic_scale_up_to_max: defaults.allow_non_atomic_scale_up_to_max,
    }
}

/// Returns true if an option is overridden that the caller supports.
pub(super) fn overrides_anything(defaults: Option<&NodeGroupAutoscalingOptions>, overrides: &Overrides) -> bool {
    let knows_startup = defaults.is_some_and(|defaults| defaults.max_node_startup_duration.is_some());
    !overrides.is_empty() || (knows_startup && overrides.max_node_startup_time.is_some())
}

/// Returns true if options aren't sent now: a Node of the group is starting, and would count as unready, so that Pods that
/// wait for it would get another one.
pub(super) fn must_wait(
    defaults: Option<&NodeGroupAutoscalingOptions>,
    overrides: &Overrides,
    has_starting_node: impl FnOnce() -> bool,
) -> bool {
    resets_startup_time(defaults) && can_wait(overrides) && has_starting_node()
}

/// Returns true if options reset the startup time of the caller's Nodes to zero: Cluster Autoscaler has it since 1.35,
/// which sends the new fields alone, and no field for it yet (kubernetes/autoscaler#10245).
fn resets_startup_time(defaults: Option<&NodeGroupAutoscalingOptions>) -> bool {
    defaults.is_some_and(|defaults| {
        defaults.scale_down_unneeded_time.is_none() && defaults.max_node_startup_duration.is_none()
    })
}

/// Returns true if nothing is lost while options aren't sent for a moment. Those that keep Nodes from being removed, and
/// the provision time of Machines that join later, can't wait.
fn can_wait(overrides: &Overrides) -> bool {
    !overrides.is_empty() && !rollout::keeps_nodes(overrides) && overrides.max_node_provision_time.is_none()
}

/// Returns the override in nanoseconds. Without one, returns the caller's default, preferably from the new field.
fn pick(value: Option<GoDuration>, new: Option<&prost_types::Duration>, old: Option<&MetaDuration>) -> i64 {
    value
        .map(GoDuration::as_nanos)
        .or_else(|| new.map(from_wire))
        .or_else(|| old.map(|old| old.duration))
        .unwrap_or_default()
}

fn from_wire(duration: &prost_types::Duration) -> i64 {
    duration.seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(i64::from(duration.nanos))
}

fn to_wire(nanos: i64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: nanos / NANOS_PER_SECOND,
        nanos: i32::try_from(nanos % NANOS_PER_SECOND).unwrap_or_default(),
    }
}
