//! Sessions of kubectl, which learns a server's kinds by discovery and prints the tables that the server renders.

use anyhow::{Result, ensure};
use e2e::{
    conformance::Use,
    kubectl::{Kubectl, assert_lines, cells},
    runner::Scenario,
    scenarios,
    wait::{SOON, eventually},
};
use serde_json::{Value, json};

pub(crate) fn sessions() -> Vec<Scenario<Use>> {
    scenarios![Use:
        kubectl::gets_objects_in_many_forms,
        kubectl::watches_changes,
        kubectl::describes,
        kubectl::scales,
        kubectl::labels_annotates_and_patches,
        kubectl::applies_and_deletes_what_files_say,
        kubectl::waits_for_conditions_and_deletes,
        kubectl::cordons_nodes,
        kubectl::says_what_went_wrong,
    ]
    .into()
}

use self as kubectl;

const GROUP: &str = "kubectl.sandbox.test";

fn definition(kind: &str, short: &str) -> Value {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{singular}s.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular,
                "shortNames": [short], "categories": ["all"],
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {
                    "status": {},
                    "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                },
                "additionalPrinterColumns": [
                    { "name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas" },
                    { "name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1 },
                    { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                ],
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": { "replicas": { "type": "integer" } },
                    },
                    "status": anything,
                } } },
            }],
        },
    })
}

/// Installs the kind of these sessions.
async fn install(kubectl: &Kubectl) -> Result<()> {
    kubectl
        .prepare(async {
            kubectl.run_on("apply -f", &definition("Gear", "gr")).await?;
            kubectl.run(&format!("wait --for=condition=Established crd/gears.{GROUP}")).await?;
            eventually("gears served", SOON, async || kubectl.run("get gears").await).await?;
            Ok(())
        })
        .await
}

fn gear(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "Gear",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": spec,
    })
}

async fn create(kubectl: &Kubectl, name: &str, replicas: u8) -> Result<()> {
    install(kubectl).await?;
    let said = kubectl.run_on("create -f", &gear(name, &json!({ "replicas": replicas, "colour": "red" }))).await?;
    ensure!(said == format!("gear.{GROUP}/{name} created\n"), "{said}");
    Ok(())
}

async fn gets_objects_in_many_forms(kubectl: &Kubectl) -> Result<()> {
    create(kubectl, "a", 3).await?;
    create(kubectl, "b", 0).await?;
    for name in ["gears", "gear", "gr", &format!("gears.{GROUP}"), &format!("gears.v1.{GROUP}"), "gears/a gears/b"] {
        let table = kubectl.run(&format!("get {name}")).await?;
        let cells = cells(&table);
        ensure!(cells[0] == ["NAME", "REPLICAS", "AGE"], "{table}");
        ensure!(
            cells[1][..2] == ["a".to_owned(), "3".to_owned()] || cells[1][0] == format!("gear.{GROUP}/a"),
            "{table}"
        );
        ensure!(cells.len() == 3, "{table}");
    }
    let wide = kubectl.run("get gears a -o wide").await?;
    ensure!(cells(&wide)[0] == ["NAME", "REPLICAS", "COLOUR", "AGE"] && cells(&wide)[1][2] == "red", "{wide}");
    let yaml = kubectl.run("get gear a -o yaml").await?;
    assert_lines(
        &yaml,
        &[&format!("apiVersion: {GROUP}/v1"), "kind: Gear", "metadata:", "name: a", "spec:", "replicas: 3"],
    )?;
    ensure!(!yaml.contains("managedFields"), "{yaml}");
    let yaml = kubectl.run("get gear a -o yaml --show-managed-fields").await?;
    ensure!(yaml.contains("manager: kubectl-create"), "{yaml}");
    let list: Value = serde_json::from_str(&kubectl.run("get gears -o json").await?)?;
    ensure!(list["items"].as_array().is_some_and(|items| items.len() == 2), "{list}");
    let path = kubectl.run("get gears -o jsonpath={.items[*].spec.replicas}").await?;
    ensure!(path == "3 0", "{path}");
    let names = kubectl.run("get gears -o name").await?;
    ensure!(names == format!("gear.{GROUP}/a\ngear.{GROUP}/b\n"), "{names}");
    let columns = kubectl.run("get gears -o custom-columns=A:.metadata.name,B:.spec.replicas --no-headers").await?;
    ensure!(cells(&columns) == [["a", "3"], ["b", "0"]], "{columns}");
    let raw = kubectl.run(&format!("get --raw /apis/{GROUP}/v1/namespaces/{}/gears/a", kubectl.namespace())).await?;
    ensure!(serde_json::from_str::<Value>(&raw)?["kind"] == "Gear", "{raw}");
    let all = kubectl.run("get all").await?;
    ensure!(all.contains(&format!("gear.{GROUP}/a")), "{all}");
    let chunks = kubectl.rows("get gears --chunk-size=1").await?;
    ensure!(chunks.len() == 2, "{chunks:?}");
    Ok(())
}

async fn watches_changes(kubectl: &Kubectl) -> Result<()> {
    create(kubectl, "a", 3).await?;
    let watch = kubectl.start("get gears -w --output-watch-events")?;
    let sees = async |line: &str| {
        eventually(&format!("kubectl get -w printing {line}"), SOON, async || {
            let output = watch.output();
            let rows = cells(&output);
            ensure!(rows.iter().any(|row| row.len() > 2 && row[..3].join(" ") == line), "it printed\n{output}");
            Ok(())
        })
        .await
    };
    sees("ADDED a 3").await?;
    kubectl.run("scale gear a --replicas=4").await?;
    sees("MODIFIED a 4").await?;
    create(kubectl, "b", 1).await?;
    sees("ADDED b 1").await?;
    kubectl.run("delete gear a").await?;
    sees("DELETED a 4").await
}

async fn describes(kubectl: &Kubectl) -> Result<()> {
    create(kubectl, "a", 3).await?;
    let uid = kubectl.run("get gear a -o jsonpath={.metadata.uid}").await?;
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": "a.1" },
        "involvedObject": {
            "apiVersion": format!("{GROUP}/v1"), "kind": "Gear", "name": "a", "namespace": kubectl.namespace(), "uid": uid,
        },
        "reason": "Oiled",
        "message": "runs smoothly",
        "type": "Normal",
        "count": 1,
        "source": { "component": "mechanic" },
        "firstTimestamp": "2024-01-01T00:00:00Z",
        "lastTimestamp": "2024-01-01T00:00:00Z",
    });
    kubectl.run_on("create -f", &event).await?;
    let said = kubectl.run("describe gear a").await?;
    let namespace = format!("Namespace: {}", kubectl.namespace());
    assert_lines(
        &said,
        &["Name: a", &namespace, "Labels: app=a", "Kind: Gear", "Spec:", "Colour: red", "Replicas: 3"],
    )?;
    ensure!(said.contains("Oiled") && said.contains("runs smoothly"), "no event in {said}");
    let events = kubectl.run("get events").await?;
    ensure!(events.contains("Oiled") && events.contains("gear/a"), "{events}");
    let events = kubectl.run("events --for gear/a").await?;
    ensure!(events.contains("Oiled"), "{events}");
    Ok(())
}

async fn scales(kubectl: &Kubectl) -> Result<()> {
    create(kubectl, "a", 3).await?;
    let replicas = async || kubectl.run("get gear a -o jsonpath={.spec.replicas}").await;
    for (flags, expected) in [("--replicas=5", "5"), ("--replicas=0", "0"), ("--replicas=2 --current-replicas=0", "2")]
    {
        let said = kubectl.run(&format!("scale gear a {flags}")).await?;
        ensure!(said == format!("gear.{GROUP}/a scaled\n"), "{said}");
        ensure!(replicas().await? == expected, "after {flags}: {}", replicas().await?);
    }
    let said = kubectl.fail("scale gear a --replicas=9 --current-replicas=7").await?;
    ensure!(said.contains("Expected replicas to be 7, was 2"), "{said}");
    let scale = kubectl.run("get gear a --subresource=scale -o jsonpath={.kind}={.spec.replicas}").await?;
    ensure!(scale == "Scale=2", "{scale}");
    kubectl.run(r#"patch gear a --subresource=scale --type=merge -p {"spec":{"replicas":6}}"#).await?;
    ensure!(replicas().await? == "6", "{}", replicas().await?);
    Ok(())
}

async fn labels_annotates_and_patches(kubectl: &Kubectl) -> Result<()> {
    create(kubectl, "a", 3).await?;
    let rows = [
        ("label gear a tier=web", "labeled"),
        ("label gear a tier-", "unlabeled"),
        ("label gear a tier=web", "labeled"),
        ("label gear a tier=web", "not labeled"),
        ("annotate gear a example.com/note=first", "annotated"),
        ("annotate gear a example.com/note=second --overwrite", "annotated"),
        (r#"patch gear a --type=merge -p {"spec":{"colour":"blue"}}"#, "patched"),
        (r#"patch gear a --type=merge -p {"spec":{"colour":"blue"}}"#, "patched (no change)"),
        (r#"patch gear a --type=json -p [{"op":"replace","path":"/spec/replicas","value":7}]"#, "patched"),
        (r#"patch gear a --subresource=status --type=merge -p {"status":{"phase":"Ready"}}"#, "patched"),
        (r#"patch gear a --type=merge --dry-run=server -p {"spec":{"colour":"green"}}"#, "patched"),
    ];
    for (command, expected) in rows {
        let said = kubectl.run(command).await?;
        ensure!(said == format!("gear.{GROUP}/a {expected}\n"), "kubectl {command} printed {said}");
    }
    let said = kubectl.fail("label gear a tier=db").await?;
    ensure!(said.contains("--overwrite is false"), "{said}");
    let object: Value = serde_json::from_str(&kubectl.run("get gear a -o json").await?)?;
    ensure!(object["metadata"]["labels"] == json!({ "app": "a", "tier": "web" }), "{object}");
    ensure!(object["metadata"]["annotations"]["example.com/note"] == "second", "{object}");
    ensure!(object["spec"] == json!({ "replicas": 7, "colour": "blue" }), "{object}");
    ensure!(object["status"] == json!({ "phase": "Ready" }), "{object}");
    Ok(())
}

async fn applies_and_deletes_what_files_say(kubectl: &Kubectl) -> Result<()> {
    install(kubectl).await?;
    let mut object = gear("a", &json!({ "replicas": 1, "colour": "red" }));
    let map = |value: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "a": value } });
    for (replicas, said) in [(1, "created"), (1, "unchanged"), (2, "configured")] {
        object["spec"] = json!({ "replicas": replicas });
        if replicas == 1 {
            object["spec"]["colour"] = json!("red");
        }
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [object, map(&replicas.to_string())] });
        let printed = kubectl.run_on("apply -f", &list).await?;
        ensure!(printed == format!("gear.{GROUP}/a {said}\nconfigmap/a {said}\n"), "{printed}");
    }
    // Fields that were removed from the file are removed from the object.
    let spec = kubectl.run("get gear a -o jsonpath={.spec}").await?;
    ensure!(spec == r#"{"replicas":2}"#, "{spec}");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [object, map("2")] });
    let printed = kubectl.run_on("delete -f", &list).await?;
    ensure!(
        printed.contains(&format!("gear.{GROUP} \"a\" deleted")) && printed.contains("configmap \"a\" deleted"),
        "{printed}"
    );
    ensure!(kubectl.rows("get gears").await?.is_empty(), "a gear is left");
    Ok(())
}

async fn waits_for_conditions_and_deletes(kubectl: &Kubectl) -> Result<()> {
    create(kubectl, "a", 3).await?;
    let mut wait = kubectl.start("wait gear/a --for=condition=Ready --timeout=20s")?;
    let status = r#"patch gear a --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    kubectl.run(status).await?;
    ensure!(wait.ended(SOON).await?.success(), "the condition was not seen: {}", wait.output());
    kubectl.run("wait gear/a --for=jsonpath={.spec.replicas}=3 --timeout=20s").await?;
    kubectl.run(r#"patch gear a --type=merge -p {"metadata":{"finalizers":["example.com/hold"]}}"#).await?;
    kubectl.run("delete gear a --wait=false").await?;
    let mut gone = kubectl.start("wait gear/a --for=delete --timeout=20s")?;
    kubectl.run(r#"patch gear a --type=merge -p {"metadata":{"finalizers":null}}"#).await?;
    // It prints nothing if the object was gone before it started.
    ensure!(gone.ended(SOON).await?.success(), "the delete was not seen: {}", gone.output());
    Ok(())
}

async fn cordons_nodes(kubectl: &Kubectl) -> Result<()> {
    let name = format!("{}-node", kubectl.namespace());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "node-role.kubernetes.io/worker": "" } },
        "spec": { "providerID": "test:///a" },
    });
    kubectl.run_on("create -f", &node).await?;
    let said = kubectl.run(&format!("cordon {name}")).await?;
    ensure!(said == format!("node/{name} cordoned\n"), "{said}");
    let unschedulable = kubectl.run(&format!("get node {name} -o jsonpath={{.spec.unschedulable}}")).await?;
    ensure!(unschedulable == "true", "{unschedulable}");
    kubectl.run(&format!("uncordon {name}")).await?;
    kubectl.run(&format!("taint node {name} a=b:NoSchedule")).await?;
    let taints = kubectl.run(&format!("get node {name} -o jsonpath={{.spec.taints[*].key}}")).await?;
    ensure!(taints.split(' ').any(|key| key == "a"), "{taints}");
    let table = kubectl.run(&format!("get node {name}")).await?;
    ensure!(cells(&table)[0][0] == "NAME" && cells(&table)[1][0] == name, "{table}");
    let said = kubectl.run(&format!("describe node {name}")).await?;
    assert_lines(&said, &[&format!("Name: {name}"), "Taints: a=b:NoSchedule"])?;
    kubectl.run(&format!("delete node {name}")).await?;
    Ok(())
}

async fn says_what_went_wrong(kubectl: &Kubectl) -> Result<()> {
    create(kubectl, "a", 3).await?;
    let rows = [
        ("get gear nobody", format!("Error from server (NotFound): gears.{GROUP} \"nobody\" not found")),
        ("get node nobody", "Error from server (NotFound): nodes \"nobody\" not found".to_owned()),
        ("get nothings", "the server doesn't have a resource type \"nothings\"".to_owned()),
        ("get gears -l a=b=c", "Error from server (BadRequest)".to_owned()),
        ("run A --image=registry.invalid/a", "Invalid value: \"A\"".to_owned()),
        (r#"patch gear a --type=json -p [{"op":"test","path":"/spec/replicas","value":4}]"#, "is invalid".to_owned()),
        (r#"patch gear a -p {"spec":{"replicas":4}}"#, "application/merge-patch+json".to_owned()),
    ];
    for (command, expected) in rows {
        let said = kubectl.fail(command).await?;
        ensure!(said.contains(&expected), "kubectl {command} said {said}");
    }
    Ok(())
}
