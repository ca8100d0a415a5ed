//! Tests of the issuers and Secrets of the server's and clients' certificates, and of the warnings about them.

use e2e::helm::{Values, printed_values};
use serde_json::{Value, json};

use crate::{
    helm,
    switches::{arguments, base, names, of_kind, pod, render},
};

const NAME: &str = "team-a/capi-autoscaler-provider";

fn by_cert_manager() -> Values {
    base().set("tls.certificates", json!("cert-manager"))
}

fn issuer(name: &str) -> Value {
    json!({ "group": "cert-manager.io", "kind": "ClusterIssuer", "name": name })
}

/// Returns the Secrets of the Pod's client authorities, which it mounts without their keys.
fn authorities(objects: &[Value]) -> Vec<String> {
    let spec = pod(objects);
    let volume = spec["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "clients").unwrap().clone();
    let sources = volume["projected"]["sources"].as_array().unwrap().clone();
    let name = |source: &Value| {
        let [item] = &source["secret"]["items"].as_array().unwrap()[..] else { panic!("not one file: {source}") };
        assert_eq!(item["key"], "ca.crt");
        let flag =
            format!("--tls-client-ca-file=/etc/capi-autoscaler-provider/clients/{}", item["path"].as_str().unwrap());
        assert!(arguments(objects).contains(&flag), "{flag} isn't given");
        source["secret"]["name"].as_str().unwrap().to_owned()
    };
    sources.iter().map(name).collect()
}

/// Returns the names of Certificates, each with its issuer's.
fn issued(objects: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let certificates = of_kind(objects, "Certificate").into_iter();
    let mut issued: Vec<_> = certificates
        .map(|it| {
            let name = text(&it["metadata"]["name"]).trim_start_matches("capi-autoscaler-provider").to_owned();
            (name, text(&it["spec"]["issuerRef"]["name"]).trim_start_matches("capi-autoscaler-provider").to_owned())
        })
        .collect();
    issued.sort();
    issued
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(certificate, issuer)| ((*certificate).to_owned(), (*issuer).to_owned())).collect()
}

#[test]
fn cert_manager_makes_an_authority_for_the_server_and_one_for_clients() {
    let objects = render(&by_cert_manager());
    assert_eq!(names(&objects, "Secret"), [""; 0]);
    let issuers = [NAME.to_owned(), format!("{NAME}-clients"), format!("{NAME}-selfsigned")];
    assert_eq!(names(&objects, "Issuer"), issuers);
    let expected =
        [("-ca", "-selfsigned"), ("-client-ca", "-selfsigned"), ("-client-tls", "-clients"), ("-server", "")];
    assert_eq!(issued(&objects), pairs(&expected));
    assert_eq!(authorities(&objects), ["capi-autoscaler-provider-client-ca"]);
    // The ca.crt in the client's Secret is the authority of clients: the server's comes from another Secret.
    let notes = helm().notes(&by_cert_manager()).unwrap();
    let values = printed_values(&notes).unwrap();
    let sources = &values["extraVolumes"][1]["projected"]["sources"];
    assert_eq!(sources[0]["secret"]["name"], "capi-autoscaler-provider-client-tls");
    assert_eq!(sources[1]["secret"]["name"], "capi-autoscaler-provider-server");
    assert_eq!(sources[1]["secret"]["items"], json!([{ "key": "ca.crt", "path": "ca.crt" }]));
    assert_eq!(values["extraVolumeMounts"][1]["mountPath"], "/etc/capi-autoscaler-provider/tls");
    assert!(!notes.contains("WARNING"), "{notes}");
}

#[test]
fn an_issuer_that_is_named_for_both_is_warned_of() {
    let shared = by_cert_manager().set("tls.certManager.issuerRef", issuer("internal"));
    let objects = render(&shared);
    assert_eq!(names(&objects, "Issuer"), [""; 0]);
    assert_eq!(issued(&objects), pairs(&[("-client", "internal"), ("-server", "internal")]));
    assert_eq!(authorities(&objects), ["capi-autoscaler-provider-server"]);
    let warned =
        "WARNING: ClusterIssuer internal certifies the server, Cluster Autoscaler, and anyone else who may request";
    let notes = helm().notes(&shared).unwrap();
    assert!(notes.contains(warned) && notes.contains("with the name cluster-autoscaler can scale"), "{notes}");
    let same = shared.clone().set("tls.certManager.clientIssuerRef", issuer("internal"));
    assert!(helm().notes(&same).unwrap().contains(warned));
    let nameless = shared.set("tls.clientNames", json!([]));
    let notes = helm().notes(&nameless).unwrap();
    assert!(notes.contains("Every holder of one can scale and delete Machines"), "{notes}");
}

#[test]
fn an_issuer_of_clients_has_certificates_of_its_own() {
    let values = by_cert_manager()
        .set("tls.certManager.issuerRef", issuer("internal"))
        .set("tls.certManager.clientIssuerRef", issuer("autoscalers"));
    let objects = render(&values);
    assert_eq!(issued(&objects), pairs(&[("-client-tls", "autoscalers"), ("-server", "internal")]));
    assert_eq!(authorities(&objects), ["capi-autoscaler-provider-client-tls"]);
    assert!(!helm().notes(&values).unwrap().contains("WARNING"));
    let named = values.clone().set("tls.clientAuthoritySecret", json!("of-clients"));
    assert_eq!(authorities(&render(&named)), ["of-clients"]);

    // Across namespaces neither side can mount the other's Secret.
    let elsewhere = values.set("clusterAutoscaler.namespace", json!("autoscaling"));
    let said = helm().refuse(&elsewhere).unwrap();
    assert!(said.contains("in tls.clientAuthoritySecret"), "{said}");
    let elsewhere = elsewhere.set("tls.clientAuthoritySecret", json!("of-clients"));
    let said = helm().refuse_notes(&elsewhere).unwrap();
    assert!(said.contains("in tls.serverAuthoritySecret"), "{said}");
    let elsewhere = elsewhere.set("tls.serverAuthoritySecret", json!("of-server"));
    assert!(helm().notes(&elsewhere).unwrap().contains("name: of-server\n"));
}

#[test]
fn in_another_namespace_cert_manager_needs_an_issuer_of_all_namespaces_and_uris_are_names_too() {
    let elsewhere = by_cert_manager()
        .set("clusterAutoscaler.namespace", json!("autoscaling"))
        .set("tls.clientNames", json!(["cluster-autoscaler", "spiffe://cluster/autoscaler"]));
    let said = helm().refuse(&elsewhere).unwrap();
    assert!(said.contains("name a ClusterIssuer"), "{said}");
    let objects = render(&elsewhere.set("tls.certManager.issuerRef", issuer("internal")));
    assert_eq!(
        names(&objects, "Certificate"),
        ["autoscaling/capi-autoscaler-provider-client", &format!("{NAME}-server")]
    );
    for certificate in of_kind(&objects, "Certificate") {
        assert_eq!(certificate["spec"]["issuerRef"], issuer("internal"));
    }
    let client = of_kind(&objects, "Certificate").into_iter().find(|it| it["metadata"]["namespace"] == "autoscaling");
    assert_eq!(client.unwrap()["spec"]["dnsNames"], json!(["cluster-autoscaler"]));
    assert_eq!(client.unwrap()["spec"]["uris"], json!(["spiffe://cluster/autoscaler"]));
}

#[test]
fn existing_secrets_are_mounted_and_none_is_made() {
    let values = base()
        .set("tls.certificates", json!("existing"))
        .set("tls.serverSecret", json!("our-server"))
        .set("tls.clientSecret", json!("our-client"));
    let objects = render(&values);
    assert_eq!(names(&objects, "Secret"), [""; 0]);
    assert_eq!(pod(&objects)["volumes"][0]["secret"]["secretName"], "our-server");
    assert_eq!(authorities(&objects), ["our-server"]);
    let notes = helm().notes(&values).unwrap();
    assert!(notes.contains("secretName: our-client\n"), "{notes}");
    assert!(notes.contains("Clients are verified against ca.crt of the Secret our-server."), "{notes}");
    let named = values.set("tls.clientAuthoritySecret", json!("our-authority"));
    assert_eq!(authorities(&render(&named)), ["our-authority"]);
    assert!(!helm().notes(&named).unwrap().contains("Clients are verified against"));
}

#[test]
fn where_nothing_can_be_looked_up_the_former_authority_is_trusted_when_configured() {
    let trusted = by_cert_manager().set("tls.formerClientAuthority", json!("trust"));
    let objects = render(&trusted);
    // The old certificate remains for a Cluster Autoscaler whose values still mount it.
    let expected = [
        ("-ca", "-selfsigned"),
        ("-client", ""),
        ("-client-ca", "-selfsigned"),
        ("-client-tls", "-clients"),
        ("-server", ""),
    ];
    assert_eq!(issued(&objects), pairs(&expected));
    assert_eq!(authorities(&objects), ["capi-autoscaler-provider-client-ca", "capi-autoscaler-provider-server"]);
    let notes = helm().notes(&trusted).unwrap();
    assert!(notes.contains("Give it the values above") && notes.contains("formerClientAuthority to refuse"), "{notes}");
    for how in ["auto", "refuse"] {
        let objects = render(&base().set("tls.formerClientAuthority", json!(how)));
        assert_eq!(authorities(&objects), ["capi-autoscaler-provider-client-ca"], "{how}");
    }
}
