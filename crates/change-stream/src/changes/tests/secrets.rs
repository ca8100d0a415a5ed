//! Redaction of Secrets, whose values must never be shown.

use serde_json::{Value, json};

use super::{Change, Kind, change, identity, ignoring, kind, machine, secret, shown, snapshot};

const HIDDEN: &str = "c3dvcmRmaXNo";

/// Returns everything that a change can print: lines, JSON, debug text.
fn printed(change: &Change) -> String {
    format!("{}\n{:?}\n{change:?}", change.to_json(), shown(&change.lines()))
}

fn assert_hidden(change: &Change) {
    let printed = printed(change);
    assert!(!printed.contains(HIDDEN) && !printed.contains("swordfish"), "{printed}");
}

/// Returns a Secret that holds the same value in every field.
fn full(value: &str) -> Value {
    let manifest = format!(r#"{{"kind":"Secret","data":{{"password":"{value}"}}}}"#);
    json!({
        "metadata": {"name": "one", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": manifest,
            "tool.example.io/original": manifest,
        }},
        "type": "Opaque",
        "data": {"password": value},
        "stringData": {"password": value},
    })
}

#[rstest::rstest]
#[case::value(json!({"data": {"a": HIDDEN}}), json!({"data": {"a": "b3RoZXI="}}), &["data.a: changed"])]
#[case::came(json!({"data": {}}), json!({"data": {"a": HIDDEN}}), &["+ data.a: \"[secret]\""])]
#[case::went(json!({"data": {"a": HIDDEN}}), json!({}), &["- data: {\"a\":\"[secret]\"}"])]
#[case::string_data(json!({"stringData": {"a": "swordfish"}}), json!({"stringData": {"a": ""}}), &["stringData.a: changed"])]
#[case::odd(json!({"data": HIDDEN}), json!({"data": "b3RoZXI="}), &["data: changed"])]
#[case::tree(json!({"data": {"a": {"b": HIDDEN}}}), json!({"data": {"a": {"b": 1}}}), &["data.a: changed"])]
#[case::type_is_shown(json!({"type": "a"}), json!({"type": "b"}), &["type: \"a\" > \"b\""])]
#[case::annotation(
    json!({"metadata": {"annotations": {"a/b": "swordfish"}}}), json!({"metadata": {"annotations": {"a/b": "x"}}}),
    &["metadata.annotations[\"a/b\"]: changed"])]
fn of_a_secret_keys_are_reported_and_that_a_value_changed(
    #[case] old: Value,
    #[case] new: Value,
    #[case] lines: &[&str],
) {
    let change = change(&secret(), &old, &new).unwrap();
    assert_hidden(&change);
    assert_eq!(shown(&change.lines()), lines);
}

#[test]
fn a_changed_value_is_in_the_patch_as_its_mark() {
    let change = change(&secret(), &json!({"data": {"a/b": HIDDEN}}), &json!({"data": {"a/b": "eA=="}})).unwrap();
    let patch = serde_json::to_value(&change.patch).unwrap();
    assert_eq!(patch, json!([{"op": "replace", "path": "/data/a~1b", "value": "[secret]"}]));
}

#[test]
fn no_corner_of_a_secret_lets_a_value_out() {
    let (old, new) = (full("b2xk"), full(HIDDEN));
    let modified = change(&secret(), &old, &new).unwrap();
    let state = || snapshot(&secret(), &[], &full(HIDDEN));
    for change in [
        modified,
        Change::added(identity(&secret()), state(), false),
        Change::deleted(identity(&secret()), Some(state()), true),
    ] {
        assert_hidden(&change);
        assert!(!printed(&change).contains("last-applied"), "{change:?}");
    }
}

#[test]
fn a_secret_stays_one_whatever_is_ignored() {
    let state = snapshot(&secret(), &["/kind", "/metadata/annotations", "/data/other"], &full(HIDDEN));
    assert_hidden(&Change::added(identity(&secret()), state, false));
}

#[rstest::rstest]
#[case::in_a_list(json!({"items": [{"kind": "ConfigMap"}, {"kind": "Secret", "apiVersion": "v1", "data": {"a": HIDDEN}}]}))]
#[case::in_a_template(json!({"spec": {"objects": [[{"kind": "Secret", "stringData": {"a": "swordfish"}}]]}}))]
#[case::in_a_list_of_secrets(json!({"x": {"kind": "SecretList", "items": [{"data": {"a": HIDDEN}}]}}))]
#[case::with_its_annotations(json!({"x": {"kind": "Secret", "metadata": {"annotations": {"a": "swordfish"}}}}))]
#[case::with_an_empty_version(json!({"x": {"kind": "Secret", "apiVersion": "", "data": {"a": HIDDEN}}}))]
#[case::in_another_version(json!({"x": {"kind": "Secret", "apiVersion": "v2", "data": {"a": HIDDEN}}}))]
#[case::as_a_yaml_text(json!({"data": {"a.yaml": "apiVersion: v1\nkind: Secret\nstringData:\n  a: swordfish\n"}}))]
#[case::as_a_quoted_yaml_text(json!({"data": {"a": "'kind' :  'Secret'\n\"data\":\n  a: c3dvcmRmaXNo\n"}}))]
#[case::as_a_json_text(json!({"data": {"a.json": "{\"kind\":\"Secret\",\"data\":{\"a\":\"c3dvcmRmaXNo\"}}"}}))]
#[case::as_a_json_text_in_one(json!({"metadata": {"annotations": {"tool/applied":
    "{\"data\":{\"x\":\"{\\\"data\\\": {\\\"a\\\": \\\"c3dvcmRmaXNo\\\"}, \\\"kind\\\": \\\"Secret\\\"}\"}}"}}}))]
#[case::as_a_yaml_text_in_json(json!({"data": {"a": "{\"x\":\"apiVersion: v1\\nkind: Secret\\ndata:\\n  a: c3dvcmRmaXNo\"}"}}))]
#[case::as_a_list_in_a_text(json!({"data": {"a": "kind: SecretList\nitems:\n- data: {a: swordfish}\n"}}))]
#[case::in_last_applied(json!({"metadata": {"annotations": {
    "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":\"swordfish\"}"}}}))]
#[case::in_last_applied_within(json!({"spec": {"template": {"metadata": {"annotations": {
    "kubectl.kubernetes.io/last-applied-configuration": "swordfish"}}}}}))]
fn a_secret_within_another_object_is_redacted_too(#[case] object: Value) {
    let (old, new) = (json!({}), object);
    assert_hidden(&change(&machine(), &old, &new).unwrap());
}

#[test]
fn a_reference_to_a_secret_is_no_secret() {
    let reference = |name: &str| json!({"spec": {"dataSecretName": name, "ref": {"kind": "Secret", "name": name}}});
    let lines = shown(&change(&machine(), &reference("a"), &reference("b")).unwrap().lines());
    assert_eq!(lines, ["spec.dataSecretName: \"a\" > \"b\"", "spec.ref.name: \"a\" > \"b\""]);
}

#[rstest::rstest]
#[case::reference("kind: Secret\nname: one\nmetadata: {}\n")]
#[case::another_kind("kind: SecretStore\ndata: {a: b}\n")]
#[case::another_field("subkind: Secret\ndata: {a: b}\n")]
#[case::message("the data of a kind of Secret: none")]
fn a_text_that_only_speaks_of_secrets_is_shown(#[case] text: &str) {
    let change = change(&machine(), &json!({}), &json!({"spec": text})).unwrap();
    assert_eq!(shown(&change.lines()), [format!("+ spec: {}", json!(text))]);
}

#[test]
fn a_change_of_a_secret_manifest_inside_a_text_is_reported_without_its_content() {
    let object = |value: &str| json!({"data": {"a": format!("kind: Secret\ndata: {{a: {value}}}")}});
    let change = change(&kind("", "ConfigMap"), &object("swordfish"), &object("x")).unwrap();
    assert_hidden(&change);
    assert_eq!(shown(&change.lines()), ["data.a: changed"]);
}

#[test]
fn a_change_of_a_redacted_value_is_reported_even_if_an_earlier_list_item_is_ignored() {
    let object = |value: &str| json!({"items": [{"a": 1}, {"kind": "Secret", "data": {"a": value}}]});
    let change = ignoring(&machine(), &["/items/0"], &object("swordfish"), &object("x")).unwrap();
    assert_hidden(&change);
    assert_eq!(shown(&change.lines()), ["items[1].data.a: changed"]);
}

#[test]
fn a_kind_of_that_name_in_another_group_is_no_secret() {
    let object = |value: &str| json!({"apiVersion": "example.io/v1", "kind": "Secret", "data": {"a": value}});
    let lines = shown(&change(&kind("example.io", "Secret"), &object("a"), &object("b")).unwrap().lines());
    assert_eq!(lines, ["data.a: \"a\" > \"b\""]);
}

#[test]
fn last_applied_of_another_kind_only_says_that_it_changed() {
    let object = |value: &str| json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": value, "other": value}}});
    let lines = shown(&change(&machine(), &object("a"), &object("b")).unwrap().lines());
    let applied = "metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]: changed";
    assert_eq!(lines, ["metadata.annotations.other: \"a\" > \"b\"", applied]);
}

/// Returns a kubeadm configuration with a secret in every field that is known to hold one.
fn kubeadm(value: &str) -> Value {
    json!({
        "initConfiguration": {"bootstrapTokens": [{"description": "d", "token": value}]},
        "joinConfiguration": {"discovery": {
            "bootstrapToken": {"apiServerEndpoint": "e", "token": value},
            "tlsBootstrapToken": value,
            "file": {"kubeConfig": {"user": {
                "authProvider": {"config": {"secret": value}},
                "exec": {"command": "c", "env": [{"name": "TOKEN", "value": value}]},
            }}},
        }},
        "files": [{"path": "/etc/key", "content": value}, {"path": "/etc/none"}],
        "users": [{"name": "u", "passwd": value}],
        "ignition": {"containerLinuxConfig": {"additionalConfig": value}},
    })
}

#[rstest::rstest]
#[case::config("bootstrap.cluster.x-k8s.io", "KubeadmConfig", |spec: Value| json!({"spec": spec}))]
#[case::config_template("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate",
    |spec: Value| json!({"spec": {"template": {"spec": spec}}}))]
#[case::control_plane("controlplane.cluster.x-k8s.io", "KubeadmControlPlane",
    |spec: Value| json!({"spec": {"kubeadmConfigSpec": spec}}))]
#[case::control_plane_template("controlplane.cluster.x-k8s.io", "KubeadmControlPlaneTemplate",
    |spec: Value| json!({"spec": {"template": {"spec": {"kubeadmConfigSpec": spec}}}}))]
fn of_kubeadm_configuration_tokens_and_files_are_reported_only_to_have_changed(
    #[case] group: &str,
    #[case] name: &str,
    #[case] object: fn(Value) -> Value,
    #[values("v1beta1", "v1beta2")] version: &str,
) {
    let kind = Kind { version: version.into(), ..kind(group, name) };
    let change = change(&kind, &object(kubeadm(HIDDEN)), &object(kubeadm("swordfish"))).unwrap();
    assert_hidden(&change);
    let lines = shown(&change.lines());
    assert_eq!(lines.len(), 8, "{lines:#?}");
    assert!(lines.iter().all(|line| line.ends_with(": changed")), "{lines:#?}");
    let new = Change::added(identity(&kind), snapshot(&kind, &[], &object(kubeadm(HIDDEN))), false);
    assert_hidden(&new);
    assert!(printed(&new).contains("/etc/key"), "what is no secret is shown");
}

#[test]
fn files_of_other_kinds_are_shown() {
    let object = |content: &str| json!({"spec": {"files": [{"content": content}]}});
    let change = change(&kind("bootstrap.example.io", "KubeadmConfig"), &object("a"), &object("b")).unwrap();
    assert_eq!(shown(&change.lines()), ["spec.files[0].content: \"a\" > \"b\""]);
}
