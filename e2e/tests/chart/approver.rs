//! The policies of the fleet's charts, judged by approver-policy itself: a certificate names a Cluster of the namespace
//! that asks for it, or nothing that the fleet takes for a Cluster.

use e2e::{
    approver_policy::{ApproverPolicy, Request},
    helm::Values,
};
use rcgen::{KeyPair, SanType};
use serde_json::{Value, json};

use crate::{
    fleet::example,
    switches::{of_kind, render},
};

/// The URI of each Cluster begins with this.
const DOMAIN: &str = "spiffe://fleet.example";

fn fleet() -> Vec<Value> {
    render(&Values::of_fleet("provider-values.yaml").unwrap())
}

fn policy(objects: &[Value], suffix: &str) -> Value {
    let policies = of_kind(objects, "CertificateRequestPolicy");
    let is_named = |policy: &&&Value| policy["metadata"]["name"].as_str().unwrap().ends_with(suffix);
    (*policies.iter().find(is_named).unwrap_or_else(|| panic!("no policy -{suffix}"))).clone()
}

/// Returns for each request the reason why it is denied.
fn judge(policy: &Value, requests: &[Request]) -> Vec<Option<String>> {
    let key = KeyPair::generate().unwrap();
    let requests: Vec<Value> = requests.iter().map(|request| request.object(&key).unwrap()).collect();
    ApproverPolicy::new().unwrap().judge(policy, &requests).unwrap()
}

/// Fails unless exactly the requests that are to be approved are.
fn assert_judged(policy: &Value, rows: &[(&str, Request, bool)]) {
    let requests: Vec<Request> = rows.iter().map(|(_, request, _)| request.clone()).collect();
    for ((case, request, approved), denied) in rows.iter().zip(judge(policy, &requests)) {
        assert_eq!(denied.is_none(), *approved, "{case}: {denied:?}, {request:?}");
    }
}

/// Returns the namespace of the Cluster that the fleet knows a caller with this URI as.
fn namespace_of(uri: &str) -> Option<&str> {
    let (namespace, name) = uri.strip_prefix(DOMAIN)?.strip_prefix("/ns/")?.split_once("/cluster/")?;
    let is_name = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !text.is_empty() && text.bytes().all(allowed)
    };
    (is_name(namespace) && is_name(name)).then_some(namespace)
}

#[test]
fn a_certificate_is_approved_for_a_cluster_of_its_own_namespace_alone() {
    let own = format!("{DOMAIN}/ns/team-a/cluster/prod");
    let own = own.as_str();
    let caller = |uris: &[&str]| Request::of_caller("team-a", uris).unwrap();
    let asked = |path: &str| caller(&[&format!("{DOMAIN}{path}")]);
    let with = |name: SanType| {
        let mut request = caller(&[own]);
        request.names.push(name);
        request
    };
    let rows = [
        ("its own", caller(&[own]), true),
        ("another Cluster of its namespace", asked("/ns/team-a/cluster/stage"), true),
        ("another namespace", asked("/ns/team-b/cluster/prod"), false),
        ("its own from another namespace", Request::of_caller("team-b", &[own]).unwrap(), false),
        ("a longer namespace", asked("/ns/team-a-evil/cluster/prod"), false),
        ("its own from a shorter namespace", Request::of_caller("team", &[own]).unwrap(), false),
        ("its own from a longer namespace", Request::of_caller("team-a-evil", &[own]).unwrap(), false),
        ("another one beside its own", caller(&[own, &format!("{DOMAIN}/ns/team-b/cluster/prod")]), false),
        ("another one before its own", caller(&[&format!("{DOMAIN}/ns/team-b/cluster/prod"), own]), false),
        ("another trust domain", caller(&["spiffe://other.example/ns/team-a/cluster/prod"]), false),
        ("a longer trust domain", caller(&["spiffe://fleet.example.evil/ns/team-a/cluster/prod"]), false),
        ("a trust domain below", caller(&["spiffe://evil.fleet.example/ns/team-a/cluster/prod"]), false),
        ("a port", caller(&["spiffe://fleet.example:1/ns/team-a/cluster/prod"]), false),
        ("a user", caller(&["spiffe://a@fleet.example/ns/team-a/cluster/prod"]), false),
        ("another scheme", caller(&["https://fleet.example/ns/team-a/cluster/prod"]), false),
        ("upper case in the trust domain", caller(&["spiffe://Fleet.example/ns/team-a/cluster/prod"]), false),
        ("upper case in the namespace", asked("/ns/Team-A/cluster/prod"), false),
        ("an encoded letter", asked("/ns/%74eam-a/cluster/prod"), false),
        ("an encoded hyphen", asked("/ns/team%2Da/cluster/prod"), false),
        ("an encoded slash", asked("/ns/team-a%2Fcluster%2Fprod/cluster/prod"), false),
        ("a path up to its namespace", asked("/ns/team-b/../team-a/cluster/prod"), false),
        ("an encoded path up", asked("/ns/team-b%2F..%2Fteam-a/cluster/prod"), false),
        ("its own path after another one", asked("/ns/team-b/cluster/ns/team-a/cluster/prod"), false),
        ("an empty part", asked("//ns/team-a/cluster/prod"), false),
        ("a ServiceAccount", asked("/ns/team-a/sa/default"), false),
        ("no URI", caller(&[]), false),
        ("a DNS name beside", with(SanType::DnsName("prod.example".try_into().unwrap())), false),
        ("an address beside", with(SanType::IpAddress([10, 0, 0, 1].into())), false),
        ("a mail address beside", with(SanType::Rfc822Name("a@prod.example".try_into().unwrap())), false),
        ("a common name", Request { common_name: Some("prod".to_owned()), ..caller(&[own]) }, false),
        ("a server's usage", Request { usages: vec!["server auth".to_owned()], ..caller(&[own]) }, false),
        ("an authority", Request { is_authority: true, ..caller(&[own]) }, false),
    ];
    let general = policy(&fleet(), "-clusters");
    assert_judged(&general, &rows);

    // Without its last part the rule would approve what begins alike.
    let mut weaker = general;
    weaker["spec"]["allowed"]["uris"]["validations"][0]["rule"] =
        json!(format!("self.startsWith('{DOMAIN}/ns/' + cr.namespace)"));
    assert_judged(&weaker, &[("a longer namespace", asked("/ns/team-a-evil/cluster/prod"), true)]);
}

/// approver-policy judges a URI as Go writes it, and the fleet reads its bytes: where these differ, it is no identity.
#[test]
fn no_approved_uri_is_a_cluster_of_another_namespace_for_the_fleet() {
    let namespaces = ["team-a", "team-b", "team-a-evil", "Team-A", "team%2Da", "team-b/../team-a", "*"];
    let tails = [
        "/cluster/prod",
        "/cluster/Prod",
        "/cluster/pr%6Fd",
        "/cluster/../../team-b/cluster/prod",
        "/cluster/prod/../../../team-b/cluster/prod",
        "/cluster/prod/cluster/other",
        "/cluster/prod/",
        "/cluster/prod?ns/team-b/cluster/prod",
        "/cluster/prod#/ns/team-b/cluster/prod",
        "/cluster/%2E%2E/team-b",
        "/cluster/",
    ];
    let mut rows = Vec::new();
    for start in [DOMAIN, "SPIFFE://fleet.example", "spiffe://fleet.example/"] {
        for namespace in namespaces {
            for tail in tails {
                let uri = format!("{start}/ns/{namespace}{tail}");
                rows.extend(["team-a", "team-b"].map(|of| (of, uri.clone())));
            }
        }
    }
    let requests: Vec<Request> = rows.iter().map(|(of, uri)| Request::of_caller(of, &[uri]).unwrap()).collect();
    let denied = judge(&policy(&fleet(), "-clusters"), &requests);
    let approved: Vec<_> = rows.iter().zip(denied).filter(|(_, denied)| denied.is_none()).map(|(row, _)| row).collect();
    for (of, uri) in &approved {
        assert!(namespace_of(uri).is_none_or(|namespace| namespace == *of), "{of} gets {uri}");
    }
    let identities: Vec<&str> =
        approved.iter().filter(|(_, uri)| namespace_of(uri).is_some()).map(|(_, uri)| uri.as_str()).collect();
    let expected = ["team-a", "team-b"].map(|namespace| format!("{DOMAIN}/ns/{namespace}/cluster/prod"));
    assert_eq!(identities, expected);
    // Else the bytes and the text that is judged would never differ here.
    let upper_case = approved.iter().filter(|(_, uri)| uri.starts_with("SPIFFE")).count();
    assert!(upper_case > 0, "{approved:?}");
}

/// cert-manager asks for the Certificates that the charts and the example make.
#[test]
fn each_certificate_of_the_charts_is_approved_by_its_policy_and_by_no_narrower_one() {
    let release = fleet();
    let [server] = of_kind(&release, "Certificate")[..] else { panic!("not one Certificate") };
    let server = Request::of_certificate(server).unwrap();
    let of_cluster = Values::of_fleet_cluster().unwrap().set("certificate.policy", json!({ "create": true }));
    let of_cluster = render(&of_cluster);
    let [client] = of_kind(&of_cluster, "Certificate")[..] else { panic!("not one Certificate") };
    let client = Request::of_certificate(client).unwrap();
    let example = example("cert-manager.yaml");
    let [authority] = of_kind(&example, "Certificate")[..] else { panic!("not one Certificate") };
    let authority = Request::of_certificate(authority).unwrap();
    let stage = Request::of_caller("team-a", &[&format!("{DOMAIN}/ns/team-a/cluster/stage")]).unwrap();
    let longer = Request::of_caller("team-a", &[&format!("{DOMAIN}/ns/team-a/cluster/prod-2")]).unwrap();

    let all = |approved: [bool; 5]| {
        let requests = [
            ("the server", server.clone()),
            ("the Cluster", client.clone()),
            ("the authority", authority.clone()),
            ("another Cluster of the namespace", stage.clone()),
            ("a longer name", longer.clone()),
        ];
        let rows = requests.into_iter().zip(approved);
        rows.map(|((case, request), approved)| (case, request, approved)).collect::<Vec<_>>()
    };
    assert_judged(&policy(&release, "-server"), &all([true, false, false, false, false]));
    assert_judged(&policy(&release, "-clusters"), &all([false, true, false, true, true]));
    assert_judged(&policy(&of_cluster, "prod-autoscaler-team-a"), &all([false, true, false, false, false]));
    assert_judged(&policy(&example, "-authority"), &all([false, false, true, false, false]));
}
