//! NodeGroupGetOptions: an answer with options replaces every default of the caller, old and new fields both.

use jiff::Timestamp;
use prost_types::Duration;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Provider, WORKERS, annotated};
use index::objects;
use proto::{MetaDuration, NodeGroupAutoscalingOptions as Options};

const MORE: &str = "MachineDeployment/team-a/more";
const MINUTE: i64 = 60_000_000_000;

/// Returns the fields other than durations that every client sends, all with non-zero values.
fn plain() -> Options {
    Options {
        scale_down_utilization_threshold: 0.5,
        scale_down_gpu_utilization_threshold: 0.6,
        zero_or_max_node_scaling: true,
        ignore_daemon_sets_utilization: true,
        ..Options::default()
    }
}

/// Returns the defaults in the form of Cluster Autoscaler 1.33.
fn old(unneeded: i64, unready: i64, provision: i64) -> Options {
    Options {
        scale_down_unneeded_time: Some(MetaDuration { duration: unneeded }),
        scale_down_unready_time: Some(MetaDuration { duration: unready }),
        max_node_provision_time: Some(MetaDuration { duration: provision }),
        ..plain()
    }
}

/// Returns the defaults in the form of 1.35.
fn new(unneeded: i64, unready: i64, provision: i64) -> Options {
    let duration = |nanos: i64| {
        Some(Duration { seconds: nanos / 1_000_000_000, nanos: i32::try_from(nanos % 1_000_000_000).unwrap() })
    };
    Options {
        scale_down_unneeded_duration: duration(unneeded),
        scale_down_unready_duration: duration(unready),
        max_node_provision_duration: duration(provision),
        ..plain()
    }
}

/// Returns the defaults in the form of 1.34.2. Every answer has this form as well.
fn both(unneeded: i64, unready: i64, provision: i64) -> Options {
    let new = new(unneeded, unready, provision);
    Options {
        scale_down_unneeded_duration: new.scale_down_unneeded_duration,
        scale_down_unready_duration: new.scale_down_unready_duration,
        max_node_provision_duration: new.max_node_provision_duration,
        ..old(unneeded, unready, provision)
    }
}

async fn with_options(pairs: &[(&str, &str)]) -> Provider {
    let pairs: Vec<_> =
        pairs.iter().map(|(name, value)| (format!("cluster.x-k8s.io/autoscaling-options-{name}"), *value)).collect();
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    Provider::with([annotated("more", &pairs)]).await
}

/// An answer with options resets those that the protocol can't carry to zero (kubernetes/autoscaler#10245).
#[rstest]
#[case::no_annotation(&[])]
#[case::an_empty_one(&[("scaledownunneededtime", "")])]
#[case::one_that_can_not_be_sent_yet(&[("maxnodestartuptime", "20m")])]
#[case::one_that_is_unknown(&[("scaledownunneeded", "20m")])]
#[case::one_that_is_wrong(&[("scaledownunneededtime", "soon")])]
#[tokio::test]
async fn options_are_unset_where_nothing_is_overridden(#[case] pairs: &[(&str, &str)]) {
    let mut provider = with_options(pairs).await;
    for defaults in [None, Some(old(1, 2, 3)), Some(new(1, 2, 3)), Some(both(1, 2, 3))] {
        assert_eq!(provider.options(MORE, defaults).await.unwrap(), None);
        assert_eq!(provider.options(WORKERS, defaults).await.unwrap(), None);
    }
}

/// Versions up to 1.34.1 panic on an answer that lacks an old duration.
#[rstest]
#[case::none(None)]
#[case::empty(Some(Options::default()))]
#[tokio::test]
async fn without_defaults_all_durations_are_present_as_zero(#[case] defaults: Option<Options>) {
    let mut provider = with_options(&[("scaledownutilizationthreshold", "0.25")]).await;
    let answer = provider.options(MORE, defaults).await.unwrap().unwrap();
    let zero = Options {
        scale_down_utilization_threshold: 0.25,
        scale_down_unneeded_time: Some(MetaDuration { duration: 0 }),
        scale_down_unready_time: Some(MetaDuration { duration: 0 }),
        max_node_provision_time: Some(MetaDuration { duration: 0 }),
        scale_down_unneeded_duration: Some(Duration::default()),
        scale_down_unready_duration: Some(Duration::default()),
        max_node_provision_duration: Some(Duration::default()),
        ..Options::default()
    };
    assert_eq!(answer, zero);
}

#[rstest]
#[case("scaledownutilizationthreshold", "-1", Options { scale_down_utilization_threshold: -1.0, ..both(1, 2, 3) })]
#[case("scaledowngpuutilizationthreshold", "0.125", Options { scale_down_gpu_utilization_threshold: 0.125, ..both(1, 2, 3) })]
#[case("scaledownunneededtime", "1h30m0.5s", both(90 * MINUTE + 500_000_000, 2, 3))]
#[case("scaledownunreadytime", "0", both(1, 0, 3))]
#[case("maxnodeprovisiontime", "2540400h", both(1, 2, 2_540_400 * 60 * MINUTE))]
#[case("ignoredaemonsetsutilization", "false", Options { ignore_daemon_sets_utilization: false, ..both(1, 2, 3) })]
#[tokio::test]
async fn each_annotation_overrides_its_own_option_only(
    #[case] name: &str,
    #[case] value: &str,
    #[case] expected: Options,
) {
    let mut provider = with_options(&[(name, value)]).await;
    for defaults in [old(1, 2, 3), new(1, 2, 3), both(1, 2, 3)] {
        assert_eq!(provider.options(MORE, Some(defaults)).await.unwrap(), Some(expected));
    }
}

/// A later client sends `maxNodeStartupDuration` (kubernetes/autoscaler#10266), and gets it back or the value that
/// overrides it.
#[rstest]
#[case::as_it_was_sent("scaledownunneededtime", 7)]
#[case::as_it_is_overridden("maxnodestartuptime", 60)]
#[tokio::test]
async fn a_client_that_knows_a_startup_time_gets_one(#[case] name: &str, #[case] expected: i64) {
    let mut provider = with_options(&[(name, "1m")]).await;
    let startup = |seconds| Some(Duration { seconds, nanos: 0 });
    let defaults = Options { max_node_startup_duration: startup(7), ..Options::default() };
    let answer = provider.options(MORE, Some(defaults)).await.unwrap().unwrap();
    assert_eq!(answer.max_node_startup_duration, startup(expected));
}

/// Cluster Autoscaler deletes all Nodes of such a group when one of them is late.
#[tokio::test]
async fn zero_or_max_is_not_sent() {
    let defaults = Options { zero_or_max_node_scaling: false, ..both(1, 2, 3) };
    let mut provider = with_options(&[("zeroormaxnodescaling", "true")]).await;
    assert_eq!(provider.options(MORE, Some(defaults)).await.unwrap(), None);
    let mut provider = with_options(&[("zeroormaxnodescaling", "true"), ("scaledownunneededtime", "1ns")]).await;
    assert_eq!(provider.options(MORE, Some(defaults)).await.unwrap(), Some(defaults));
}

/// If both are sent and differ, the caller's core reads the new field.
#[tokio::test]
async fn a_new_field_goes_before_its_old_one() {
    let mut provider = with_options(&[("scaledownunneededtime", "1m")]).await;
    let defaults = Options { scale_down_unready_time: Some(MetaDuration { duration: 77 }), ..both(1, 2, 3) };
    let answer = provider.options(MORE, Some(defaults)).await.unwrap();
    assert_eq!(answer, Some(both(MINUTE, 2, 3)));
}

#[rstest]
#[case::longest(Duration { seconds: i64::MAX, nanos: 999_999_999 }, i64::MAX)]
#[case::shortest(Duration { seconds: i64::MIN, nanos: -999_999_999 }, i64::MIN)]
#[case::negative(Duration { seconds: -1, nanos: -5 }, -1_000_000_005)]
#[case::ill_formed(Duration { seconds: 1, nanos: i32::MIN }, 1_000_000_000 + i64::from(i32::MIN))]
#[tokio::test]
async fn a_default_beyond_all_reason_is_held_within_the_numbers(#[case] sent: Duration, #[case] nanos: i64) {
    let mut provider = with_options(&[("scaledownunneededtime", "1m")]).await;
    let defaults = Options { scale_down_unready_duration: Some(sent), ..new(1, 2, 3) };
    let answer = provider.options(MORE, Some(defaults)).await.unwrap().unwrap();
    assert_eq!(answer.scale_down_unready_time, Some(MetaDuration { duration: nanos }));
    let echoed = answer.scale_down_unready_duration.unwrap();
    assert_eq!(i128::from(echoed.seconds) * 1_000_000_000 + i128::from(echoed.nanos), i128::from(nanos));
}

/// Options reset the startup time to zero since 1.35: a Node that has joined and isn't ready would count as unready, and
/// Cluster Autoscaler would add another one for the Pods that wait for it (kubernetes/autoscaler#10245).
#[rstest]
#[case::not_ready(new(1, 2, 3), &[UNNEEDED], &starting(json!({})), false)]
#[case::ready_with_a_startup_taint(
    new(1, 2, 3),
    &[UNNEEDED],
    &starting(json!({
        "spec": {"taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })),
    false
)]
#[case::ready(
    new(1, 2, 3),
    &[UNNEEDED],
    &starting(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})),
    true
)]
#[case::created_long_ago(
    new(1, 2, 3),
    &[UNNEEDED],
    &json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}),
    true
)]
#[case::an_older_caller(both(1, 2, 3), &[UNNEEDED], &starting(json!({})), true)]
#[case::a_provision_time(
    new(1, 2, 3),
    &[UNNEEDED, ("cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime", "40m")],
    &starting(json!({})),
    true
)]
#[tokio::test]
async fn options_wait_for_a_node_that_is_starting(
    #[case] defaults: Options,
    #[case] annotations: &[(&str, &str)],
    #[case] node: &Value,
    #[case] sent: bool,
) {
    let mut provider =
        Provider::with([annotated("workers", annotations), annotated("more", annotations), objects::node("a", node)])
            .await;
    assert!(provider.options(MORE, Some(defaults)).await.unwrap().is_some(), "no Node of it is starting");
    let answer = provider.options(WORKERS, Some(defaults)).await.unwrap();
    assert_eq!(answer.is_some(), sent, "{answer:?}");
}

const UNNEEDED: (&str, &str) = ("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "1h");

/// Returns a Node that was created just now.
fn starting(mut more: Value) -> Value {
    more["metadata"] = json!({"creationTimestamp": Timestamp::now().to_string()});
    more
}
