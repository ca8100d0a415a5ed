//! Cases of discovery: the groups, versions and resources that exist, in the legacy form and in the aggregated one.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{GROUP, OLD_VERSION, VERSION},
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(discovery::a_group_is_listed_with_its_versions_the_preferred_one_first),
        case!(discovery::the_resources_of_a_version_are_listed_with_names_verbs_and_scope),
        case!(discovery::aggregated_discovery_holds_groups_versions_and_resources),
        case!(discovery::an_unknown_group_version_or_kind_is_not_found),
    ]
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

/// Returns true if a resource has the verbs that clients use here; a server may have more.
fn has_verbs(resource: &Value) -> bool {
    let has = |verb| resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|one| one == verb));
    ["create", "delete", "get", "list", "patch", "update", "watch"].into_iter().all(has)
}

async fn the_resources_of_a_version_are_listed_with_names_verbs_and_scope(subject: &Subject<'_>) -> Result<()> {
    for version in [VERSION, OLD_VERSION] {
        let resources = resources(subject, &format!("/apis/{GROUP}/{version}")).await?;
        let widgets = named(&resources, "widgets")?;
        let names =
            ["kind", "singularName", "shortNames", "categories", "namespaced"].map(|part| widgets[part].clone());
        let expected = [json!("Widget"), json!("widget"), json!(["wix"]), json!(["conformance"]), json!(true)];
        ensure!(names == expected, "{widgets}");
        ensure!(has_verbs(widgets), "{widgets}");
    }
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
    ensure!(has_verbs(widgets), "{widgets}");
    let subresources = widgets["subresources"].as_array().context("no subresources")?;
    let mut kinds: Vec<_> =
        subresources.iter().map(|sub| (&sub["subresource"], &sub["responseKind"]["kind"])).collect();
    kinds.sort_unstable_by_key(|(name, _)| name.to_string());
    ensure!(kinds == [(&json!("scale"), &json!("Scale")), (&json!("status"), &json!("Widget"))], "{widgets}");
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
