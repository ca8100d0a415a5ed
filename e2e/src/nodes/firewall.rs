//! Takes kube-router's firewall away from a Node, chain by chain: a table that is written back as a whole would undo
//! what kube-proxy has written in between.

use anyhow::{Result, ensure};

use super::{Cluster, POLL_INTERVAL};
use crate::wait::{SOON, every};

/// The beginnings of the names of kube-router's chains, all in the table `filter`.
const CHAINS: [&str; 3] = ["KUBE-ROUTER-", "KUBE-POD-FW-", "KUBE-NWPLCY-"];

/// The beginnings of the names of its sets of addresses. Those of IPv6 have a mark before it.
const SETS: [&str; 3] = ["KUBE-SRC-", "KUBE-DST-", "kube-router-"];

/// The mark of a set of IPv6 addresses.
const IPV6: &str = "inet6:";

/// Removes the rules, chains and sets of a kube-router that has ended, and fails if any is left.
pub async fn remove_kube_router(cluster: &Cluster) -> Result<()> {
    // A kernel without IPv6 has no such tables.
    let other = cluster.on_node(&["sh", "-c", "test ! -e /proc/net/if_inet6 || echo ip6tables"])?;
    for program in std::iter::once("iptables").chain(other.lines()) {
        let run = |arguments: &[&str]| cluster.on_node(&[&[program, "--wait"][..], arguments].concat());
        for command in removal(&run(&["--list-rules"])?) {
            run(&command.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        let rules = cluster.on_node(&[&format!("{program}-save")])?;
        let left: Vec<_> = rules.lines().filter(|rule| CHAINS.iter().any(|chain| rule.contains(chain))).collect();
        ensure!(left.is_empty(), "rules of kube-router are left in {program}: {left:?}");
    }
    // The kernel releases the sets of a removed rule a moment later.
    every(POLL_INTERVAL, "kube-router's sets gone", SOON, async || {
        for set in cluster.on_node(&["ipset", "list", "-name"])?.lines().filter(|set| is_own_set(set)) {
            cluster.on_node(&["ipset", "destroy", set])?;
        }
        Ok(())
    })
    .await
}

/// Returns the commands of iptables that remove kube-router's rules and chains from these rules: first the jumps to its
/// chains from others, then the chains' own rules, which jump to each other, and then the chains.
fn removal(rules: &str) -> Vec<Vec<String>> {
    let rules: Vec<Vec<String>> = rules.lines().map(words).collect();
    let jumps = rules.iter().filter_map(|rule| match rule.as_slice() {
        [add, chain, rest @ ..] if add == "-A" && !is_own_chain(chain) && jumps_to_own(rest) => {
            Some([&["-D".to_owned(), chain.clone()], rest].concat())
        }
        _ => None,
    });
    let own = rules.iter().filter_map(|rule| match rule.as_slice() {
        [new, chain] if new == "-N" && is_own_chain(chain) => Some(chain),
        _ => None,
    });
    let each = |command: &'static str| own.clone().map(move |chain| vec![command.to_owned(), chain.clone()]);
    jumps.chain(each("-F")).chain(each("-X")).collect()
}

fn is_own_chain(name: &str) -> bool {
    CHAINS.iter().any(|beginning| name.starts_with(beginning))
}

fn is_own_set(name: &str) -> bool {
    let name = name.strip_prefix(IPV6).unwrap_or(name);
    SETS.iter().any(|beginning| name.starts_with(beginning))
}

fn jumps_to_own(rule: &[String]) -> bool {
    rule.windows(2).any(|pair| ["-j", "-g"].contains(&pair[0].as_str()) && is_own_chain(&pair[1]))
}

/// Splits a rule as iptables lists it: a word with spaces is in double quotes, in which a backslash comes before some
/// letters.
fn words(rule: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut letters = rule.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if quoted => word.get_or_insert_default().extend(letters.next()),
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_before_rules_and_rules_before_chains_and_others_stay() {
        let rules = r#"-P INPUT ACCEPT
-P FORWARD ACCEPT
-N KUBE-FORWARD
-N KUBE-POD-FW-B
-N KUBE-ROUTER-INPUT
-A INPUT -m comment --comment "kube-router netpol - 4IA2" -j KUBE-ROUTER-INPUT
-A INPUT -m comment --comment "not -j KUBE-ROUTER-INPUT" -j KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-ROUTER-INPUT -m comment --comment "POD name:a namespace: b" -j KUBE-POD-FW-B
"#;
        let expected = [
            &["-D", "INPUT", "-m", "comment", "--comment", "kube-router netpol - 4IA2", "-j", "KUBE-ROUTER-INPUT"][..],
            &["-F", "KUBE-POD-FW-B"],
            &["-F", "KUBE-ROUTER-INPUT"],
            &["-X", "KUBE-POD-FW-B"],
            &["-X", "KUBE-ROUTER-INPUT"],
        ];
        assert_eq!(removal(rules), expected);
        assert_eq!(removal("-P INPUT ACCEPT\n-N KUBE-FORWARD\n"), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_quoted_word_keeps_its_spaces_and_loses_its_backslashes() {
        for (rule, expected) in [
            ("-A  INPUT -j DROP ", &["-A", "INPUT", "-j", "DROP"][..]),
            (r#"--comment "say \"x\" it\'s" -j A"#, &["--comment", "say \"x\" it's", "-j", "A"]),
            (r#"--comment "" -j A"#, &["--comment", "", "-j", "A"]),
        ] {
            assert_eq!(words(rule), expected, "{rule}");
        }
    }

    #[test]
    fn sets_of_both_families_are_kube_routers_by_their_names() {
        for (set, is_own) in
            [("KUBE-SRC-A", true), ("inet6:KUBE-DST-A", true), ("kube-router-svip", true), ("KUBE-CLUSTER-IP", false)]
        {
            assert_eq!(is_own_set(set), is_own, "{set}");
        }
    }
}
