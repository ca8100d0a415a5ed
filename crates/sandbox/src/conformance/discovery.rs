//! Cases of discovery: the groups, versions and resources that exist, in the legacy form and in the aggregated one.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    objects::{GROUP, OLD_VERSION, VERSION},
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(discovery::the_version_is_answered),
        case!(discovery::the_core_group_names_its_version),
        case!(discovery::a_group_is_listed_with_its_versions_the_preferred_one_first),
        case!(discovery::one_group_is_answered_alone),
        case!(discovery::the_resources_of_a_version_are_listed_with_names_verbs_and_scope),
        case!(discovery::subresources_are_resources_of_their_own),
        case!(discovery::core_kinds_are_listed_with_their_scope),
        case!(discovery::aggregated_discovery_holds_groups_versions_and_resources),
        case!(discovery::aggregated_discovery_of_the_core_group_is_apart),
        case!(discovery::an_unknown_group_version_or_kind_is_not_found),
    ]
}

async fn the_version_is_answered(subject: &Subject<'_>) -> Result<()> {
    let version = subject.get("/version").expect(200).await?;
    for part in ["major", "minor", "gitVersion"] {
        ensure!(version[part].as_str().is_some_and(|text| !text.is_empty()), "no {part} in {version}");
    }
    ensure!(version["major"] == "1", "{version}");
    ensure!(version["gitVersion"].as_str().is_some_and(|text| text.starts_with("v1.")), "{version}");
    Ok(())
}

async fn the_core_group_names_its_version(subject: &Subject<'_>) -> Result<()> {
    let found = subject.get("/api").expect(200).await?;
    ensure!(found["kind"] == "APIVersions", "{found}");
    ensure!(found["versions"] == json!(["v1"]), "{found}");
    Ok(())
}

fn expected_group() -> Value {
    let version = |name: &str| json!({ "groupVersion": format!("{GROUP}/{name}"), "version": name });
    json!({
        "name": GROUP,
        "versions": [version(VERSION), version(OLD_VERSION)],
        "preferredVersion": version(VERSION),
    })
}

async fn a_group_is_listed_with_its_versions_the_preferred_one_first(subject: &Subject<'_>) -> Result<()> {
    let found = subject.get("/apis").expect(200).await?;
    ensure!(found["kind"] == "APIGroupList" && found["apiVersion"] == "v1", "{found}");
    let groups = found["groups"].as_array().context("no groups")?;
    let group = groups.iter().find(|group| group["name"] == GROUP).context("the suite's group is missing")?;
    ensure!(*group == expected_group(), "{group}");
    ensure!(groups.iter().any(|group| group["name"] == "apiextensions.k8s.io"), "no group of CRDs in {found}");
    ensure!(groups.iter().all(|group| group["name"] != ""), "the core group is among the named ones: {found}");
    Ok(())
}

async fn one_group_is_answered_alone(subject: &Subject<'_>) -> Result<()> {
    let found = subject.get(format!("/apis/{GROUP}")).expect(200).await?;
    let mut expected = expected_group();
    expected["kind"] = json!("APIGroup");
    expected["apiVersion"] = json!("v1");
    ensure!(found == expected, "{found}");
    Ok(())
}

async fn resources(subject: &Subject<'_>, path: &str) -> Result<Vec<Value>> {
    let found = subject.get(path).expect(200).await?;
    ensure!(found["kind"] == "APIResourceList", "{found}");
    let version = path.trim_start_matches("/apis/").trim_start_matches("/api/");
    ensure!(found["groupVersion"] == version, "not of {version}: {found}");
    Ok(found["resources"].as_array().context("no resources")?.clone())
}

fn named<'a>(resources: &'a [Value], name: &str) -> Result<&'a Value> {
    resources.iter().find(|resource| resource["name"] == name).with_context(|| format!("no resource {name}"))
}

fn verbs(resource: &Value) -> Vec<&str> {
    let mut verbs: Vec<&str> = resource["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    verbs.sort_unstable();
    verbs
}

const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

async fn the_resources_of_a_version_are_listed_with_names_verbs_and_scope(subject: &Subject<'_>) -> Result<()> {
    for version in [VERSION, OLD_VERSION] {
        let resources = resources(subject, &format!("/apis/{GROUP}/{version}")).await?;
        let widgets = named(&resources, "widgets")?;
        let names =
            ["kind", "singularName", "shortNames", "categories", "namespaced"].map(|part| widgets[part].clone());
        let expected = [json!("Widget"), json!("widget"), json!(["wix"]), json!(["conformance"]), json!(true)];
        ensure!(names == expected, "{widgets}");
        ensure!(verbs(widgets) == ALL_VERBS, "{widgets}");
    }
    Ok(())
}

async fn subresources_are_resources_of_their_own(subject: &Subject<'_>) -> Result<()> {
    let resources = resources(subject, &format!("/apis/{GROUP}/{VERSION}")).await?;
    let status = named(&resources, "widgets/status")?;
    ensure!(status["kind"] == "Widget" && status["namespaced"] == true && status["singularName"] == "", "{status}");
    ensure!(verbs(status) == SUBRESOURCE_VERBS, "{status}");
    let scale = named(&resources, "widgets/scale")?;
    let kind = ["group", "version", "kind"].map(|part| scale[part].as_str().unwrap_or_default());
    ensure!(kind == ["autoscaling", "v1", "Scale"], "{scale}");
    ensure!(verbs(scale) == SUBRESOURCE_VERBS, "{scale}");
    Ok(())
}

async fn core_kinds_are_listed_with_their_scope(subject: &Subject<'_>) -> Result<()> {
    let resources = resources(subject, "/api/v1").await?;
    let rows = [
        ("nodes", "Node", "node", false, json!(["no"])),
        ("namespaces", "Namespace", "namespace", false, json!(["ns"])),
        ("pods", "Pod", "pod", true, json!(["po"])),
        ("configmaps", "ConfigMap", "configmap", true, json!(["cm"])),
        ("secrets", "Secret", "secret", true, Value::Null),
        ("events", "Event", "event", true, json!(["ev"])),
    ];
    for (plural, kind, singular, namespaced, short) in rows {
        let found = named(&resources, plural)?;
        let parts = ["kind", "singularName", "namespaced", "shortNames"].map(|part| found[part].clone());
        ensure!(parts == [json!(kind), json!(singular), json!(namespaced), short], "{found}");
        for verb in ["create", "delete", "get", "list", "patch", "update", "watch"] {
            ensure!(verbs(found).contains(&verb), "no {verb} in {found}");
        }
    }
    ensure!(verbs(named(&resources, "nodes/status")?) == SUBRESOURCE_VERBS, "{resources:?}");
    Ok(())
}

async fn aggregated(subject: &Subject<'_>, path: &str) -> Result<Vec<Value>> {
    let answer = subject.get(path).accept(AGGREGATED).answer().await?;
    let found = answer.expect(200)?;
    ensure!(found["kind"] == "APIGroupDiscoveryList", "{found}");
    ensure!(found["apiVersion"] == "apidiscovery.k8s.io/v2", "{found}");
    // A client recognises by this type that its request was understood.
    let kind = answer.header("content-type");
    ensure!(kind.contains("apidiscovery.k8s.io") && kind.contains("APIGroupDiscoveryList"), "the content is {kind:?}");
    Ok(found["items"].as_array().context("no items")?.clone())
}

async fn aggregated_discovery_holds_groups_versions_and_resources(subject: &Subject<'_>) -> Result<()> {
    let groups = aggregated(subject, "/apis").await?;
    let group =
        groups.iter().find(|group| group["metadata"]["name"] == GROUP).context("the suite's group is missing")?;
    let versions = group["versions"].as_array().context("no versions")?;
    let found: Vec<&Value> = versions.iter().map(|version| &version["version"]).collect();
    ensure!(found == [VERSION, OLD_VERSION], "{group}");
    let resources = versions[0]["resources"].as_array().context("no resources")?;
    let [widgets] = resources.as_slice() else { anyhow::bail!("not one resource: {group}") };
    let parts = ["resource", "responseKind", "scope", "singularResource", "shortNames", "categories"];
    let parts = parts.map(|part| widgets[part].clone());
    let kind = json!({ "group": GROUP, "version": VERSION, "kind": "Widget" });
    let expected =
        [json!("widgets"), kind, json!("Namespaced"), json!("widget"), json!(["wix"]), json!(["conformance"])];
    ensure!(parts == expected, "{widgets}");
    ensure!(verbs(widgets) == ALL_VERBS, "{widgets}");
    let subresources = widgets["subresources"].as_array().context("no subresources")?;
    let mut kinds: Vec<_> =
        subresources.iter().map(|sub| (&sub["subresource"], &sub["responseKind"]["kind"])).collect();
    kinds.sort_unstable_by_key(|(name, _)| name.to_string());
    ensure!(kinds == [(&json!("scale"), &json!("Scale")), (&json!("status"), &json!("Widget"))], "{widgets}");
    Ok(())
}

async fn aggregated_discovery_of_the_core_group_is_apart(subject: &Subject<'_>) -> Result<()> {
    let groups = aggregated(subject, "/api").await?;
    let [core] = groups.as_slice() else { anyhow::bail!("not one group: {groups:?}") };
    ensure!(core["metadata"]["name"].as_str().unwrap_or_default().is_empty(), "{core}");
    let resources = core["versions"][0]["resources"].as_array().context("no resources")?;
    let node = resources.iter().find(|resource| resource["resource"] == "nodes").context("no nodes")?;
    ensure!(node["scope"] == "Cluster" && node["responseKind"]["kind"] == "Node", "{node}");
    Ok(())
}

async fn an_unknown_group_version_or_kind_is_not_found(subject: &Subject<'_>) -> Result<()> {
    let paths = [
        "/apis/nobody.sandbox.test".to_owned(),
        "/apis/nobody.sandbox.test/v1".to_owned(),
        "/apis/nobody.sandbox.test/v1/things".to_owned(),
        format!("/apis/{GROUP}/v7"),
        format!("/apis/{GROUP}/v7/widgets"),
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/gadgets", subject.namespace()),
        subject.core("gadgets"),
        format!("{}/a/gadget", subject.widgets()),
    ];
    for path in paths {
        let answer = subject.get(path).answer().await?;
        ensure!(answer.status == 404, "{} was answered with {}: {}", answer.request, answer.status, answer.text);
    }
    Ok(())
}
