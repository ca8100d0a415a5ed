//! The autoscaling options that a node group overrides. An invalid value is dropped and affects no other: its option
//! keeps the default that Cluster Autoscaler sent.

use arcstr::ArcStr;
use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use crate::capi::{CAPACITY_ERROR_GRACE, Keys, OWN_PREFIX, SCALE_DOWN_WHILE_ROLLING_OUT};

use super::{GoDuration, Problem, ProblemKind};

/// The options that annotations override. `None` keeps Cluster Autoscaler's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// The utilization (1.0 is full) below which a Node may be scaled down; −1 is never.
    pub scale_down_utilization_threshold: Option<f64>,
    /// The same for GPU Nodes.
    pub scale_down_gpu_utilization_threshold: Option<f64>,
    /// The time for which a Node is unneeded before it is scaled down.
    pub scale_down_unneeded_time: Option<GoDuration>,
    /// The time for which an unready Node is unneeded before it is scaled down.
    pub scale_down_unready_time: Option<GoDuration>,
    /// The time for which Cluster Autoscaler waits for a Node to join.
    pub max_node_provision_time: Option<GoDuration>,
    /// The time that a Node may take to become ready. The protocol can't carry it yet (kubernetes/autoscaler#10266).
    pub max_node_startup_time: Option<GoDuration>,
    /// True if DaemonSet pods don't count as utilization.
    pub ignore_daemon_sets_utilization: Option<bool>,
}

/// The reason why zeroOrMaxNodeScaling isn't sent (Cluster Autoscaler 1.33 to 1.37).
const WHOLE_GROUPS: &str = "Cluster Autoscaler deletes all Nodes of such a group when one of them is late or fails, which \
    this protocol can't turn off, and never scales down a group of more than one Node; remove it";

impl Overrides {
    /// Returns true if no option is overridden: the response should then leave the options unset
    /// (kubernetes/autoscaler#10245).
    pub fn is_empty(&self) -> bool {
        *self == Self { max_node_startup_time: self.max_node_startup_time, ..Self::default() }
    }

    /// The annotation suffixes of the options.
    pub const NAMES: [&'static str; 8] = [
        "scaledownutilizationthreshold",
        "scaledowngpuutilizationthreshold",
        "scaledownunneededtime",
        "scaledownunreadytime",
        "maxnodeprovisiontime",
        "maxnodestartuptime",
        "zeroormaxnodescaling",
        "ignoredaemonsetsutilization",
    ];

    /// Sets the option of one annotation.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "scaledownutilizationthreshold" => put(&mut self.scale_down_utilization_threshold, threshold(value)),
            "scaledowngpuutilizationthreshold" => put(&mut self.scale_down_gpu_utilization_threshold, threshold(value)),
            "scaledownunneededtime" => put(&mut self.scale_down_unneeded_time, time(value)),
            "scaledownunreadytime" => put(&mut self.scale_down_unready_time, time(value)),
            "maxnodeprovisiontime" => put(&mut self.max_node_provision_time, time(value)),
            "maxnodestartuptime" => put(&mut self.max_node_startup_time, time(value)),
            "zeroormaxnodescaling" if switch(value)? => Err(WHOLE_GROUPS.to_owned()),
            "zeroormaxnodescaling" => Ok(()),
            "ignoredaemonsetsutilization" => put(&mut self.ignore_daemon_sets_utilization, switch(value)),
            _ => Err(format!("no such option is known; known are {}", Self::NAMES.join(", "))),
        }
    }
}

/// Returns the overrides of a group, and a problem for every annotation that is invalid. As in Cluster Autoscaler, an
/// empty value is skipped, and the case of a value doesn't matter.
pub fn overrides(keys: &Keys, annotations: &BTreeMap<ArcStr, ArcStr>) -> (Overrides, Vec<Problem>) {
    let mut overrides = Overrides::default();
    let mut problems = Vec::new();
    let options = annotations
        .iter()
        .filter_map(|(key, value)| Some((key, key.strip_prefix(keys.options_prefix.as_str())?, value)))
        .filter(|(.., value)| !value.is_empty());
    for (key, name, value) in options {
        if let Err(rule) = overrides.set(name, &value.to_lowercase()) {
            let rule = format!("{rule}; it is ignored");
            problems.push(Problem::annotation(ProblemKind::Options, key, value, &rule));
        }
    }
    (overrides, problems)
}

/// The annotations with this program's own prefix.
const OWN: [&str; 2] = [SCALE_DOWN_WHILE_ROLLING_OUT, CAPACITY_ERROR_GRACE];

/// Returns a problem for every annotation that has this program's own prefix and isn't known, which is a typing error.
pub fn unknown_own(annotations: &BTreeMap<ArcStr, ArcStr>) -> Vec<Problem> {
    let problem = |(key, value): (&ArcStr, &ArcStr)| {
        let known = OWN.map(|known| known.trim_start_matches(OWN_PREFIX)).join(", ");
        let rule = format!("no such annotation of a node group is known; known are {known}; it is ignored");
        Problem::annotation(ProblemKind::Options, key, value, &rule)
    };
    let is_unknown = |key: &ArcStr| key.starts_with(OWN_PREFIX) && !OWN.contains(&key.as_str());
    annotations.iter().filter(|(key, _)| is_unknown(key)).map(problem).collect()
}

fn put<T>(option: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *option = Some(value?);
    Ok(())
}

fn threshold(value: &str) -> Result<f64, String> {
    f64::from_str(value)
        .ok()
        .filter(|threshold| threshold.is_finite())
        .ok_or_else(|| "a threshold must be a plain number such as 0.5, or -1 for never".to_owned())
}

fn time(value: &str) -> Result<GoDuration, String> {
    let rule = |why: &dyn Display| format!("a time must be a Go duration such as 10m or 1h30m: {why}");
    let time: GoDuration = value.parse().map_err(|error| rule(&error))?;
    if time.as_nanos() < 0 { Err(rule(&"it must not be negative")) } else { Ok(time) }
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "true" | "t" | "1" => Ok(true),
        "false" | "f" | "0" => Ok(false),
        _ => Err("it must be true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::{annotations, assert_names};

    const PREFIX: &str = "cluster.x-k8s.io/autoscaling-options-";

    fn read(values: &[(&str, &str)]) -> (Overrides, Vec<Problem>) {
        overrides(&Keys::default(), &annotations(PREFIX, values))
    }

    #[allow(clippy::unnecessary_wraps)] // as the fields have it
    fn minutes(minutes: i64) -> Option<GoDuration> {
        Some(GoDuration::from_nanos(minutes * 60_000_000_000))
    }

    #[rstest]
    #[case::utilization("scaledownutilizationthreshold", "0.25",
        Overrides { scale_down_utilization_threshold: Some(0.25), ..Overrides::default() })]
    #[case::gpu_utilization("scaledowngpuutilizationthreshold", "1",
        Overrides { scale_down_gpu_utilization_threshold: Some(1.0), ..Overrides::default() })]
    #[case::never_scale_down("scaledownutilizationthreshold", "-1",
        Overrides { scale_down_utilization_threshold: Some(-1.0), ..Overrides::default() })]
    #[case::an_exponent("scaledownutilizationthreshold", "5E-1",
        Overrides { scale_down_utilization_threshold: Some(0.5), ..Overrides::default() })]
    #[case::unneeded_time("scaledownunneededtime", "20m",
        Overrides { scale_down_unneeded_time: minutes(20), ..Overrides::default() })]
    #[case::unready_time("scaledownunreadytime", "1h30m",
        Overrides { scale_down_unready_time: minutes(90), ..Overrides::default() })]
    #[case::provision_time("maxnodeprovisiontime", "+0.5h",
        Overrides { max_node_provision_time: minutes(30), ..Overrides::default() })]
    #[case::startup_time("maxnodestartuptime", "25m",
        Overrides { max_node_startup_time: minutes(25), ..Overrides::default() })]
    #[case::no_time("scaledownunneededtime", "0",
        Overrides { scale_down_unneeded_time: minutes(0), ..Overrides::default() })]
    #[case::not_zero_or_max("zeroormaxnodescaling", "false", Overrides::default())]
    #[case::ignore_daemon_sets("ignoredaemonsetsutilization", "false",
        Overrides { ignore_daemon_sets_utilization: Some(false), ..Overrides::default() })]
    #[case::the_case_of_a_value_does_not_matter("scaledownunneededtime", "20M",
        Overrides { scale_down_unneeded_time: minutes(20), ..Overrides::default() })]
    #[case::an_empty_value_means_nothing("scaledownunneededtime", "", Overrides::default())]
    fn each_option_is_read(#[case] name: &str, #[case] value: &str, #[case] expected: Overrides) {
        assert_eq!(read(&[(name, value)]), (expected, Vec::new()));
    }

    #[rstest]
    #[case::no_number("scaledownutilizationthreshold", "half", "plain number")]
    #[case::nan("scaledownutilizationthreshold", "NaN", "plain number")]
    #[case::infinity("scaledowngpuutilizationthreshold", "inf", "plain number")]
    #[case::beyond_any_float("scaledownutilizationthreshold", "1e999", "plain number")]
    #[case::percent("scaledownutilizationthreshold", "50%", "plain number")]
    #[case::no_unit("scaledownunneededtime", "10", "a Go duration such as 10m or 1h30m")]
    #[case::days("scaledownunreadytime", "1d", "units h, m, s")]
    #[case::a_sign_within("maxnodeprovisiontime", "1h-30m", "units h, m, s")]
    #[case::too_long("maxnodeprovisiontime", "9999999999h", "at most 292 years")]
    #[case::negative("maxnodeprovisiontime", "-5m", "must not be negative")]
    #[case::no_switch("zeroormaxnodescaling", "yes", "true or false")]
    #[case::zero_or_max("zeroormaxnodescaling", "true", "deletes all Nodes of such a group when one of them is late")]
    #[case::unknown("scaledownuneededtime", "10m", "known are scaledownutilizationthreshold, ")]
    #[case::upper_case("scaleDownUnneededTime", "10m", "known are ")]
    fn a_bad_one_is_dropped_alone_and_named(#[case] name: &str, #[case] value: &str, #[case] rule: &str) {
        let (overrides, problems) = read(&[(name, value), ("ignoredaemonsetsutilization", "true")]);
        assert_eq!(overrides, Overrides { ignore_daemon_sets_utilization: Some(true), ..Overrides::default() });
        assert_names(
            &problems,
            ProblemKind::Options,
            &[&format!("{PREFIX}{name}"), &format!("{value:?}"), rule, "ignored"],
        );
    }

    #[test]
    fn only_what_can_be_sent_makes_them_not_empty() {
        assert!(Overrides::default().is_empty());
        for name in Overrides::NAMES.into_iter().filter(|name| *name != "zeroormaxnodescaling") {
            let (overrides, problems) = read(&[(name, if name.ends_with("time") { "1m" } else { "1" })]);
            assert_eq!(problems, [], "{name}");
            assert_ne!(overrides, Overrides::default(), "{name}");
            assert_eq!(overrides.is_empty(), name == "maxnodestartuptime", "{name}");
        }
    }

    #[test]
    fn the_prefix_follows_the_api_group() {
        let annotations = annotations("example.com/autoscaling-options-", &[("scaledownunneededtime", "1m")]);
        assert!(!overrides(&Keys::new("example.com"), &annotations).0.is_empty());
        assert!(overrides(&Keys::default(), &annotations).0.is_empty());
    }

    proptest! {
        #[test]
        fn no_value_panics(name in 0..8_usize, value in any::<String>()) {
            let _ = read(&[(Overrides::NAMES[name], &value)]);
        }
    }
}
