//! Which labels of a real Node its group's next Node has too. Those that name one Node or one moment are left out: a template
//! must not promise what no new Node has.

use crate::capi::Node;

/// The names of one Node.
pub(crate) struct Names<'a> {
    pub(crate) node: &'a str,
    pub(crate) machine: Option<&'a str>,
    pub(crate) provider_id: Option<&'a str>,
}

impl Names<'_> {
    /// Returns true if a value names the Node: by its name or host name, its Machine's, or the instance of its providerID.
    fn include(&self, value: &str) -> bool {
        let is_named = |name: &str| !value.is_empty() && host(value).eq_ignore_ascii_case(host(name));
        let instance = self.provider_id.and_then(|id| id.rsplit('/').next());
        // The instance of a scale set is a mere number.
        let is_instance = instance.is_some_and(|instance| instance.len() >= 3 && instance == value);
        is_named(self.node) || self.machine.is_some_and(is_named) || is_instance
    }
}

/// Returns the name of a host without its domain.
fn host(name: &str) -> &str {
    name.split_once('.').map_or(name, |(host, _)| host)
}

/// The last words of keys whose values name one machine or one moment.
const NAMING: [&str; 24] = [
    "address",
    "checksum",
    "date",
    "digest",
    "generation",
    "hash",
    "host",
    "hostname",
    "ip",
    "ipv4",
    "ipv6",
    "mac",
    "node",
    "nodename",
    "phase",
    "serial",
    "sha",
    "state",
    "status",
    "time",
    "timestamp",
    "token",
    "uid",
    "uuid",
];

/// The words before `id` or `name` at the end of keys whose values name one machine.
const MACHINES: [&str; 9] = ["device", "host", "instance", "machine", "node", "provider", "server", "system", "vm"];

/// Returns true if the next Node of a group has this label too, as far as one can tell from one Node. The label is left out
///
/// - if a template has it by another rule: [`Node::TEMPLATE_LABELS`] and the hostname;
/// - if Cluster API has it for Machines, where it names one object: its domain, but not that of labels for Nodes;
/// - if its value [names the Node](Names::include);
/// - if the last word of its key says that the value names one machine or one moment: [`NAMING`], or `id` and `name` of
///   [`MACHINES`];
/// - if its value is a UUID, a time or date, or a hash.
pub(crate) fn describes_group(key: &str, value: &str, node: &Names<'_>) -> bool {
    let (domain, name) = key.rsplit_once('/').unwrap_or(("", key));
    let within = |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_of_machine = within("cluster.x-k8s.io") && !within("node.cluster.x-k8s.io");
    let (rest, last) = last_word(name);
    let is_one_of = |word: &str, words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    let names_one =
        is_one_of(last, &NAMING) || (is_one_of(last, &["id", "name"]) && is_one_of(last_word(rest).1, &MACHINES));
    !Node::TEMPLATE_LABELS.contains(&key) && !is_of_machine && !names_one && !node.include(value) && !is_unique(value)
}

/// Returns the last word of a key's name, and what is before it: `instance-id` and `instanceId` have two words.
fn last_word(name: &str) -> (&str, &str) {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let begins = |(before, c): &(char, (usize, char))| {
        !before.is_ascii_alphanumeric() || (before.is_ascii_lowercase() && c.1.is_ascii_uppercase())
    };
    let start = name.chars().zip(name.char_indices().skip(1)).filter(begins).last().map_or(0, |(_, (start, _))| start);
    name.split_at(start)
}

/// Returns true if a value looks like a UUID or a hash, of 16 hexadecimal digits or more; like a time in seconds, of 10
/// decimal ones or more; or begins with a date.
fn is_unique(value: &str) -> bool {
    let mut digits = value.bytes().filter(|c| *c != b'-');
    let is_hash = digits.clone().count() >= 16 && digits.all(|c| c.is_ascii_hexdigit());
    let is_time = value.len() >= 10 && value.bytes().all(|c| c.is_ascii_digit());
    is_hash || is_time || begins_with_date(value)
}

/// Returns true for a text that begins like `2026-01-02` or `20260102`.
fn begins_with_date(text: &str) -> bool {
    let part = |range: std::ops::Range<usize>| {
        let digits = text.get(range).filter(|part| part.bytes().all(|c| c.is_ascii_digit()));
        digits.and_then(|digits| digits.parse::<u32>().ok())
    };
    let (month, day) = if text.get(4..5) == Some("-") && text.get(7..8) == Some("-") {
        (part(5..7), part(8..10))
    } else {
        (part(4..6), part(6..8))
    };
    part(0..4).is_some_and(|year| (1970..=2100).contains(&year))
        && month.is_some_and(|month| (1..=12).contains(&month))
        && day.is_some_and(|day| (1..=31).contains(&day))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NODE: Names<'_> = Names {
        node: "ip-10-0-0-7.eu-1.compute.internal",
        machine: Some("workers-x7k2p-4tq8z"),
        provider_id: Some("aws:///eu-1a/i-0123456789abcdef0"),
    };

    #[rstest]
    #[case::of_a_csi_driver("topology.ebs.csi.aws.com/zone", "eu-1a")]
    #[case::of_another("topology.csi.vmware.com/k8s-zone", "rack-1")]
    #[case::of_a_team("team", "db")]
    #[case::without_a_value("node-role.kubernetes.io/worker", "")]
    #[case::of_a_group("eks.amazonaws.com/nodegroup", "workers-1")]
    #[case::of_a_groups_name("alpha.eksctl.io/nodegroup-name", "workers")]
    #[case::of_a_pool("karpenter.sh/nodepool", "default")]
    #[case::of_a_zone_by_id("topology.k8s.aws/zone-id", "use1-az1")]
    #[case::of_a_system("feature.node.kubernetes.io/system-os_release.VERSION_ID", "22.04")]
    #[case::of_a_cpu("feature.node.kubernetes.io/cpu-model.id", "106")]
    #[case::of_a_gpu("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB")]
    #[case::of_an_image("kubernetes.azure.com/node-image-version", "AKSUbuntu-2204gen2containerd-202601.09.0")]
    #[case::old_name_of_a_zone("failure-domain.beta.kubernetes.io/zone", "eu-1a")]
    #[case::of_the_operator("node.cluster.x-k8s.io/disk", "ssd")]
    #[case::a_kind_of_node("node-type", "large")]
    #[case::a_year_in_a_name("windows", "2019-datacenter")]
    #[case::a_short_number("generation-of-cpu", "5")]
    fn a_label_describes_the_group(#[case] key: &str, #[case] value: &str) {
        assert!(describes_group(key, value, &NODE));
    }

    #[rstest]
    #[case::hostname("kubernetes.io/hostname", "anything")]
    #[case::of_a_rule_of_its_own("topology.kubernetes.io/zone", "eu-1a")]
    #[case::the_nodes_name("example.com/x", "ip-10-0-0-7.eu-1.compute.internal")]
    #[case::its_first_part("example.com/x", "ip-10-0-0-7")]
    #[case::with_another_domain("example.com/x", "IP-10-0-0-7.example.com")]
    #[case::the_machines_name("example.com/x", "workers-x7k2p-4tq8z")]
    #[case::the_instance("example.com/x", "i-0123456789abcdef0")]
    #[case::an_instances_id("alpha.eksctl.io/instance-id", "i-1")]
    #[case::in_one_word("example.com/instanceId", "i-1")]
    #[case::a_nodes_id("csi.example.com/node_id", "7")]
    #[case::a_nodes_name("openebs.io/nodename", "other")]
    #[case::of_a_local_volume("topology.hostpath.csi/node", "other")]
    #[case::a_host_of_virtual_machines("node.cluster.x-k8s.io/esxi-host", "esx1.example.com")]
    #[case::a_serial_number("example.com/serial", "C02X")]
    #[case::an_address("example.com/internal-ip", "10.0.0.7")]
    #[case::a_machine_set("cluster.x-k8s.io/set-name", "workers-x7k2p")]
    #[case::a_machines_hash("machine-template-hash", "3456-abcde")]
    #[case::a_hash_by_its_key("karpenter.sh/nodepool-hash", "1")]
    #[case::a_hash_by_its_value("k8s.io/config", "9e107d9d372bb6826bd81d3542a419d6")]
    #[case::a_uuid("example.com/x", "9b4bf4b1-715d-4c5b-a5ff-9d257f4156e2")]
    #[case::a_time_in_seconds("nvidia.com/gfd.x", "1767225600")]
    #[case::a_time_by_its_key("nvidia.com/gfd.timestamp", "now")]
    #[case::a_day("example.com/patched", "2026-01-02")]
    #[case::a_time("example.com/patched", "20260102T030405Z")]
    #[case::a_state("nvidia.com/mig.config.state", "rebooting")]
    fn a_label_names_one_node_or_moment(#[case] key: &str, #[case] value: &str) {
        assert!(!describes_group(key, value, &NODE));
    }

    #[test]
    fn the_reference_lists_all_words() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/templates.md");
        let page = std::fs::read_to_string(path).unwrap();
        let missing: Vec<_> =
            NAMING.iter().chain(&MACHINES).filter(|word| !page.contains(&format!("`{word}`"))).collect();
        assert_eq!(missing, [&""; 0]);
    }

    #[test]
    fn a_scale_sets_number_is_no_name() {
        let node = Names { node: "vmss000000", machine: None, provider_id: Some("azure:///virtualMachines/0") };
        assert!(describes_group("gpus", "0", &node));
        assert!(!describes_group("example.com/x", "vmss000000", &node));
    }
}
