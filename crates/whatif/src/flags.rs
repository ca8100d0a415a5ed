//! Cluster Autoscaler's flags: those that the user gives, with shorter times, and those by which it finds the APIs in
//! memory.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use rules::{GoDuration, ScopeSpec};

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;

/// The waits with their defaults, which all versions since 1.33 have. They are shortened.
const WAITS: [(&str, i64); 13] = [
    ("blocking-system-pod-distruption-timeout", 60 * MINUTE),
    ("initial-node-group-backoff-duration", 5 * MINUTE),
    ("max-node-group-backoff-duration", 30 * MINUTE),
    ("max-node-provision-time", 15 * MINUTE),
    ("max-pod-eviction-time", 2 * MINUTE),
    ("node-delete-delay-after-taint", 5 * SECOND),
    ("node-deletion-delay-timeout", 2 * MINUTE),
    ("node-group-backoff-reset-timeout", 180 * MINUTE),
    ("scale-down-delay-after-add", 10 * MINUTE),
    ("scale-down-delay-after-failure", 3 * MINUTE),
    ("scale-down-unneeded-time", 10 * MINUTE),
    ("scale-down-unready-time", 20 * MINUTE),
    ("unremovable-node-recheck-timeout", 5 * MINUTE),
];

/// The time between two loops.
const SCAN: (&str, i64) = ("scan-interval", 10 * SECOND);
/// The shortest time between two loops.
const SHORTEST_SCAN: i64 = SECOND / 4;

/// Further waits, which are shortened if they are given.
const OTHER_WAITS: [&str; 9] = [
    "max-node-startup-time",
    "new-pod-scale-up-delay",
    "node-deletion-batcher-interval",
    "node-deletion-candidate-ttl",
    "pending-pods-batching-timeout",
    "provisioning-request-initial-backoff-time",
    "provisioning-request-max-backoff-time",
    "salvo-scale-up-budget",
    "scale-down-delay-after-delete",
];

/// The flags that say where Cluster Autoscaler runs and how it logs. They are replaced.
const REPLACED: [&str; 26] = [
    "address",
    "alsologtostderr",
    "cloud-config",
    "cloud-provider",
    "cluster-name",
    "clusterapi-cloud-config-authoritative",
    "kube-api-content-type",
    "kube-client-burst",
    "kube-client-qps",
    "kubeconfig",
    "kubernetes",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "logtostderr",
    "log-file",
    "nodes",
    "profiling",
    "record-duplicated-events",
    "stderrthreshold",
    "v",
    "write-status-configmap",
];

const DISCOVERY: &str = "node-group-auto-discovery";
const STATUS_NAME: &str = "status-config-map-name";
const NAMESPACE: &str = "namespace";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flags {
    /// The flags that are passed on, with shorter times.
    pub(crate) passed: Vec<String>,
    /// The specs of `--node-group-auto-discovery`.
    pub(crate) scope: Vec<ScopeSpec>,
    /// Its namespace, and the name of the ConfigMap in which it writes its status.
    pub(crate) status: (String, String),
    /// Its waits, as they are after the shortening.
    waits: BTreeMap<String, Duration>,
}

impl Flags {
    /// Reads the flags that a user gives, in Go's forms, and makes waits so many times shorter.
    pub(crate) fn new(given: &[String], speed: u32) -> anyhow::Result<Self> {
        let mut flags = Self {
            passed: Vec::new(),
            scope: Vec::new(),
            status: ("kube-system".to_owned(), "cluster-autoscaler-status".to_owned()),
            waits: BTreeMap::new(),
        };
        let mut given = given.iter().map(String::as_str).peekable();
        while let Some(text) = given.next() {
            let Some(flag) = text.strip_prefix("--").or_else(|| text.strip_prefix('-')) else {
                bail!("{text:?} after -- is no flag of Cluster Autoscaler: write --NAME=VALUE");
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, given.next_if(|next| !next.starts_with('-'))),
            };
            // Cluster Autoscaler takes underscores, too.
            let name = &name.replace('_', "-");
            flags.take(name, value, speed).with_context(|| format!("Cluster Autoscaler's flag --{name}"))?;
        }
        for (name, nanos) in WAITS {
            flags.waits.entry(name.to_owned()).or_insert_with(|| shorter(nanos, speed));
        }
        let scan = flags.waits.remove(SCAN.0).unwrap_or_else(|| shorter(SCAN.1, speed));
        flags.waits.insert(SCAN.0.to_owned(), scan.max(Duration::from_nanos(SHORTEST_SCAN.cast_unsigned())));
        let waits: Vec<_> = flags.waits.iter().map(|(name, wait)| format!("--{name}={}ms", wait.as_millis())).collect();
        flags.passed.extend(waits);
        Ok(flags)
    }

    fn take(&mut self, name: &str, value: Option<&str>, speed: u32) -> anyhow::Result<()> {
        let needed = || value.context("it needs a value");
        if REPLACED.contains(&name) {
            return Ok(());
        }
        if name == SCAN.0 || OTHER_WAITS.contains(&name) || WAITS.iter().any(|(wait, _)| *wait == name) {
            let given: GoDuration = needed()?.parse().with_context(|| format!("{:?}", value.unwrap_or_default()))?;
            self.waits.insert(name.to_owned(), shorter(given.as_nanos(), speed));
            return Ok(());
        }
        match name {
            DISCOVERY => {
                let specs = needed()?.split(|c: char| c.is_whitespace() || c == ';').filter(|text| !text.is_empty());
                for spec in specs {
                    self.scope.push(spec.parse()?);
                }
                return Ok(());
            }
            NAMESPACE => needed()?.clone_into(&mut self.status.0),
            STATUS_NAME => needed()?.clone_into(&mut self.status.1),
            _ => {}
        }
        self.passed.push(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")));
        Ok(())
    }

    pub(crate) fn wait(&self, name: &str) -> Duration {
        self.waits.get(name).copied().unwrap_or_default()
    }

    /// Returns the time between two loops.
    pub(crate) fn scan(&self) -> Duration {
        self.wait(SCAN.0)
    }
}

fn shorter(nanos: i64, speed: u32) -> Duration {
    Duration::from_nanos(u64::try_from(nanos / i64::from(speed)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn flags(given: &[&str], speed: u32) -> Flags {
        let given: Vec<_> = given.iter().map(|&flag| flag.to_owned()).collect();
        Flags::new(&given, speed).unwrap()
    }

    #[test]
    fn waits_become_shorter_whether_they_are_given_or_not() {
        let given =
            ["--scale-down-unneeded-time=5m", "-new-pod-scale-up-delay", "30s", "--max_node_provision_time=30m"];
        let flags = flags(&given, 60);
        for flag in [
            "--max-node-provision-time=30000ms",
            "--scale-down-unneeded-time=5000ms",
            "--new-pod-scale-up-delay=500ms",
            "--scale-down-delay-after-add=10000ms",
            "--scan-interval=250ms",
        ] {
            assert!(flags.passed.iter().any(|passed| passed == flag), "{flag}: {:?}", flags.passed);
        }
        assert_eq!(flags.wait("scale-down-unneeded-time"), Duration::from_secs(5));
        assert!(!flags.passed.iter().any(|passed| passed.contains('_')), "{:?}", flags.passed);
    }

    #[test]
    fn connections_are_replaced_and_decisions_are_passed_on() {
        let given = [
            "--kubeconfig=/etc/kubeconfig",
            "--cloud-provider",
            "clusterapi",
            "--leader-elect",
            "--expander=priority,least-waste",
            "--balance-similar-node-groups",
            "--max-nodes-total=20",
            "--namespace=autoscaling",
            "--node-group-auto-discovery=clusterapi:namespace=team-a,clusterName=prod",
        ];
        let flags = flags(&given, 10);
        let decisions: Vec<_> = flags.passed.iter().filter(|flag| !flag.ends_with("ms")).map(String::as_str).collect();
        assert_eq!(
            decisions,
            [
                "--expander=priority,least-waste",
                "--balance-similar-node-groups",
                "--max-nodes-total=20",
                "--namespace=autoscaling"
            ]
        );
        assert_eq!(flags.scope, [ScopeSpec::cluster("team-a", "prod")]);
        assert_eq!(flags.status, ("autoscaling".to_owned(), "cluster-autoscaler-status".to_owned()));
    }

    #[rstest]
    #[case(&["scan-interval=1s"], "is no flag")]
    #[case(&["--scan-interval=soon"], "--scan-interval")]
    #[case(&["--namespace"], "it needs a value")]
    fn a_flag_that_cannot_be_read_is_an_error(#[case] given: &[&str], #[case] part: &str) {
        let given: Vec<_> = given.iter().map(|&flag| flag.to_owned()).collect();
        let error = format!("{:#}", Flags::new(&given, 1).unwrap_err());
        assert!(error.contains(part), "{error}");
    }
}
