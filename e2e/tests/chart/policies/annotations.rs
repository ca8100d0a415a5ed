//! Compares the policy's rules of annotations with the program's parsers: both must agree on each row of the table,
//! except rows that CEL can't decide, and the policy must never report more than the program.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use capi::{Context, Meta, ObjectKey, ScalableKind, ScalableResource};
use e2e::wait::eventually;
use nodegroup::{
    self, CapacityWords, ErrorRules, InfrastructureState, Overrides, RealNodes, Rules, Scope, TemplateRules,
};
use serde_json::{Map, Value, json};

use super::{
    CAPACITY, IN_FORCE, OPTIONS, OWN, SIZES,
    api::{Answer, Api},
    both, group,
    texts::{self, ROWS, Verdict},
};
use crate::cluster::Cluster;

const WORDS: &str =
    "set aside by capi-autoscaler-provider, since the value has another form than docs/reference/annotations.md says: ";

type Keys = BTreeSet<String>;

/// Returns the annotations that a warning or refusal names.
fn named(text: &str) -> Option<Keys> {
    let (_, keys) = text.split_once(WORDS)?;
    Some(keys.trim_end_matches('"').split(", ").map(str::to_owned).collect())
}

/// Returns the annotations that the API server warns of.
fn warned(answer: &Answer) -> Result<Keys> {
    ensure!(answer.status < 300 && answer.warnings.len() <= 1, "{answer:?}");
    answer.warnings.first().map_or_else(|| Ok(Keys::new()), |text| named(text).with_context(|| text.clone()))
}

/// Returns the annotations of an object that the program ignores. The object's other problems don't matter here.
fn set_aside(object: &Value) -> Result<Keys> {
    let context = Context::new("cluster.x-k8s.io");
    let rules = Rules {
        keys: context.keys.clone(),
        scope: Scope::All,
        template: TemplateRules::default(),
        prices: Arc::default(),
        errors: ErrorRules::default(),
        capacity_words: CapacityWords::default(),
    };
    let kind = object["kind"].as_str().and_then(ScalableKind::parse).context("no kind")?;
    let meta = Meta { key: ObjectKey::new("team-a", "workers"), uid: "uid".into(), resource_version: "1".into() };
    let object = ScalableResource::decode(kind, meta, object, &context).map_err(anyhow::Error::msg)?;
    let problems = match nodegroup::evaluate(&object, None, InfrastructureState::None, RealNodes::default(), &rules) {
        Ok(definition) => definition.problems,
        Err(excluded) => excluded.problems,
    };
    let key = |message: &str| {
        let key = message.strip_prefix("annotation ")?.split([' ', ',']).next()?;
        Some(key.to_owned())
    };
    Ok(problems.iter().filter_map(|problem| key(&problem.message)).collect())
}

fn object(annotations: &[(&str, &str)]) -> Value {
    let mut all = Map::<String, Value>::from_iter([(format!("{SIZES}max-size"), json!("5"))]);
    all.extend(annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    group("MachineDeployment", "judged", &all.into())
}

pub(crate) async fn the_policy_and_the_program_agree(api: &Api) -> Result<()> {
    eventually("the policy in force", IN_FORCE, async || {
        let answer = api.try_create(&object(&[("capacity.cluster-autoscaler.kubernetes.io/cpu", "x")])).await?;
        ensure!(!answer.warnings.is_empty(), "{answer:?}");
        Ok(())
    })
    .await?;
    let mut wrong = Vec::new();
    for (said, annotations) in ROWS {
        let object = object(annotations);
        let (policy, program) = (warned(&api.try_create(&object).await?)?, set_aside(&object)?);
        let as_said = match said {
            Verdict::Fine => program.is_empty() && policy.is_empty(),
            Verdict::SetAside => !program.is_empty() && policy == program,
            Verdict::SetAsideInSilence => !program.is_empty() && policy.is_empty(),
        };
        if !as_said {
            wrong.push(format!("{annotations:?}, {said:?}: the program says {program:?}, the policy {policy:?}"));
        }
    }
    of_each_text(api, &mut wrong).await?;
    of_groups_and_other_objects(api, &mut wrong).await?;
    ensure!(wrong.is_empty(), "{} of them differ:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Uses each text as the value of each annotation: the policy must report no more than the program, and for most texts
/// as much.
async fn of_each_text(api: &Api, wrong: &mut Vec<String>) -> Result<()> {
    let (mut same, mut silent) = (0_usize, 0_usize);
    for text in texts::texts()? {
        for together in together(&text) {
            let all: Vec<(&str, &str)> =
                together.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let policy = warned(&api.try_create(&object(&all)).await?).with_context(|| format!("{all:?}"))?;
            let mut program = Keys::new();
            // Separately, since the program reports only the first problems of an object.
            for apart in &together {
                let apart: Vec<(&str, &str)> =
                    apart.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                program.extend(set_aside(&object(&apart))?);
            }
            if !policy.is_subset(&program) {
                wrong.push(format!("{text:?}: the program says {program:?}, the policy {policy:?}"));
            }
            same += policy.intersection(&program).count();
            silent += program.difference(&policy).count();
        }
    }
    ensure!(same > 1000, "only {same} were set aside by both");
    ensure!(silent * 50 < same, "the policy is silent about {silent}, and reports {same}");
    Ok(())
}

/// Returns objects with the text in all annotations, each with the sets of annotations that the program must get
/// separately.
fn together(text: &str) -> Vec<Vec<Vec<(String, String)>>> {
    let pair = |prefix: &str, name: &str, value: &str| (format!("{prefix}{name}"), value.to_owned());
    let one = |prefix: &'static str| move |name: &&str| vec![pair(prefix, name, text)];
    let gpu = |kind: Option<&str>, count: Option<&str>, driver: Option<&str>| {
        let named = [("gpu-type", kind), ("gpu-count", count), ("dra-driver", driver)];
        named.into_iter().filter_map(|(name, value)| Some(pair(CAPACITY, name, value?))).collect::<Vec<_>>()
    };
    let mut alone: Vec<Vec<(String, String)>> = Overrides::NAMES.iter().map(one(OPTIONS)).collect();
    alone.extend(
        ["cpu", "memory", "ephemeral-disk", "maxPods", "labels", "taints", "csi-driver"].iter().map(one(CAPACITY)),
    );
    alone.extend(["resources", "overhead", "price-per-hour", "zone-from-failure-domain"].iter().map(one(OWN)));
    alone.extend(
        ["scale-down-while-rolling-out", "capacity-error-grace"].iter().map(one("capi-autoscaler-provider.io/")),
    );
    alone.push(gpu(Some(text), Some("1"), None));
    vec![
        alone,
        vec![gpu(Some("a/b"), Some(text), None)],
        vec![gpu(None, Some(text), Some("gpu.example.com"))],
        vec![gpu(None, Some("1"), Some(text))],
        vec![vec![pair(SIZES, "min-size", text)]],
        vec![vec![pair(SIZES, "max-size", text), pair(SIZES, "min-size", "1")]],
    ]
}

/// Checks objects that are no groups, of which nothing is reported, and owned ones that are groups.
async fn of_groups_and_other_objects(api: &Api, wrong: &mut Vec<String>) -> Result<()> {
    let cpu = format!("{CAPACITY}cpu");
    let owner =
        |kind: &str| json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "a", "uid": "b" }]);
    let mut rows = vec![
        object(&[(&cpu, "x"), (&format!("{SIZES}max-size"), "0")]),
        object(&[(&cpu, "x"), ("cluster.x-k8s.io/paused", "")]),
    ];
    for (kind, of) in [("MachineSet", "MachineDeployment"), ("MachineSet", "Cluster"), ("MachinePool", "Cluster")] {
        let annotations = json!({ format!("{SIZES}max-size"): "5", &cpu: "x" });
        let mut object = group(kind, "judged", &annotations);
        object["metadata"]["ownerReferences"] = owner(of);
        rows.push(object);
    }
    let mut reported = Vec::new();
    for object in &rows {
        let (policy, program) = (warned(&api.try_create(object).await?)?, set_aside(object)?);
        if policy != program {
            wrong.push(format!("{object}: the program says {program:?}, the policy {policy:?}"));
        }
        reported.push(!program.is_empty());
    }
    ensure!(reported == [false, false, false, true, true], "{reported:?}");
    Ok(())
}

/// An object of the maximum size is checked within the API server's cost limits for expressions, and written.
pub(crate) async fn a_large_object_is_judged_and_written(api: &Api) -> Result<()> {
    let labels = format!("{CAPACITY}labels");
    // The limit counts bytes, not characters.
    let at_the_bound = "a=b,".repeat(4096);
    for (value, reported) in [
        (at_the_bound.clone(), false),
        (at_the_bound + ",", true),
        ("a=b,\u{2003}".repeat(2340), false),
        ("a=b,\u{2003}".repeat(2341), true),
    ] {
        let object = object(&[(&labels, &value)]);
        let (policy, program) = (warned(&api.try_create(&object).await?)?, set_aside(&object)?);
        ensure!(policy == program && program.is_empty() != reported, "{} bytes: {policy:?}, {program:?}", value.len());
    }
    let beyond = object(&[(&labels, &"a=b,".repeat(60_000))]);
    ensure!(warned(&api.try_create(&beyond).await?)? == Keys::from([labels.clone()]), "not reported");

    // All lists at their limit, valid or invalid at their end, which is the worst case for a regular expression.
    for (end, reported) in [("", false), (",!", true)] {
        let lists = [
            (labels.clone(), "example.com/a=b,"),
            (format!("{CAPACITY}taints"), "a=b:NoSchedule,"),
            (format!("{CAPACITY}csi-driver"), "a.b=1,"),
            (format!("{OWN}resources"), "example.com/a=1,"),
            (format!("{OWN}overhead"), "memory=1,"),
        ];
        // Beyond 100 taints the program ignores the rest, which the policy doesn't count.
        let entries = |entry: &str| if entry.contains("NoSchedule") { 400 } else { (16_384 - end.len()) / entry.len() };
        let values: Vec<_> = lists.iter().map(|(key, entry)| (key, entry.repeat(entries(entry)) + end)).collect();
        let annotations: Vec<_> = values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let large = object(&annotations);
        let expected: Keys = lists.iter().filter(|_| reported).map(|(key, _)| key.clone()).collect();
        ensure!(warned(&api.try_create(&large).await?)? == expected, "{expected:?} aren't reported");
        // An update is checked twice, for the new and the old object.
        let mut made = api.create(&named_anew(&large, "large")).await?;
        made.warnings.clear();
        let mut object = made.done()?;
        object["metadata"]["annotations"][&labels] = json!("!");
        ensure!(warned(&api.replace(&object).await?)? == Keys::from([labels.clone()]), "not reported on update");
        let deleted = api.patch("MachineDeployment", "large", &json!({ "metadata": { "annotations": null } })).await?;
        ensure!(deleted.status == 200, "{deleted:?}");
        api.delete("MachineDeployment", "large").await?;
    }

    // Beyond the number of annotations that are searched none is reported, and the object is still written.
    let names: Vec<_> = (0..10_000).map(|number| format!("a{number}")).collect();
    let mut many: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let cpu = format!("{CAPACITY}cpu");
    many.push((&cpu, "x"));
    ensure!(warned(&api.try_create(&object(&many)).await?)?.is_empty(), "reported");
    many.drain(..9_100);
    ensure!(warned(&api.try_create(&object(&many)).await?)? == Keys::from([cpu.clone()]), "not reported among 900");
    Ok(())
}

/// All ignored annotations of an object are in the audit log, for every writer and every change.
pub(crate) async fn annotations_that_the_policy_ignores_are_in_the_audit_log(
    cluster: &Cluster,
    api: &Api,
) -> Result<()> {
    let cpu = format!("{CAPACITY}cpu");
    let audited = named_anew(&object(&[(&cpu, "x")]), "audited");
    ensure!(warned(&api.create(&audited).await?)? == Keys::from([cpu.clone()]), "not warned of");
    // This audit log omits requests of administrators.
    let program = Api::of_release(&cluster.plane).await?;
    let change = json!({ "metadata": { "annotations": { "example.com/a": "b" } } });
    program.patch("MachineDeployment", "audited", &change).await?.done()?;
    let change = json!({ "metadata": { "annotations": { &cpu: "y" } } });
    ensure!(
        warned(&program.patch("MachineDeployment", "audited", &change).await?)? == Keys::from([cpu.clone()]),
        "not warned of"
    );
    eventually("the audit log", IN_FORCE, async || {
        let log = cluster.plane.audit_log()?;
        let events = log.lines().map(serde_json::from_str::<Value>).filter_map(Result::ok);
        let of_object = events.filter(|event| event["objectRef"]["name"] == "audited" && event["verb"] == "patch");
        let annotations: Vec<_> = of_object.map(|event| event["annotations"].clone()).collect();
        let set_aside = "capi-autoscaler-provider-team-a-annotations/set-aside";
        ensure!(annotations.len() == 2 && annotations.iter().all(|all| all[set_aside] == *cpu), "{annotations:?}");
        let failure = "validation.policy.admission.k8s.io/validation_failure";
        let failed: Vec<_> = annotations.iter().map(|all| all[failure].is_string()).collect();
        ensure!(failed == [false, true], "{annotations:?}");
        Ok(())
    })
    .await
}

fn named_anew(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = json!(name);
    object
}

pub(crate) async fn a_change_is_refused_only_for_what_it_makes_worse(cluster: &Cluster, api: &Api) -> Result<()> {
    let [cpu, memory, max] = [format!("{CAPACITY}cpu"), format!("{CAPACITY}memory"), format!("{SIZES}max-size")];
    // Written while the policy only warned.
    let old = named_anew(&object(&[(&cpu, "old")]), "old");
    ensure!(warned(&api.create(&old).await?)? == Keys::from([cpu.clone()]), "not warned of");
    let no_group = named_anew(&object(&[(&cpu, "old"), (&max, "0")]), "no-group");
    ensure!(warned(&api.create(&no_group).await?)?.is_empty(), "warned of what is no group");

    cluster
        .helm
        .apply("upgrade", &both().set("admissionPolicies.annotations.validationActions", json!(["Deny", "Audit"])))?;
    let refuses = |answer: &Answer, keys: &[&String]| {
        let message = answer.body["message"].as_str().unwrap_or_default();
        let expected: Keys = keys.iter().map(|key| (*key).clone()).collect();
        ensure!(
            answer.status == 422 && named(message).as_ref() == Some(&expected),
            "{answer:?}, expected {expected:?}"
        );
        Ok(())
    };
    let wrong = object(&[(&cpu, "new")]);
    eventually("a refusal", IN_FORCE, async || refuses(&api.try_create(&wrong).await?, &[&cpu])).await?;

    let annotate = |annotations: Value| json!({ "metadata": { "annotations": annotations } });
    let patch =
        async |name: &str, annotations: Value| api.patch("MachineDeployment", name, &annotate(annotations)).await;
    // An annotation that was already wrong and isn't changed blocks no write.
    patch("old", json!({ "example.com/a": "b" })).await?.done()?;
    api.patch("MachineDeployment", "old", &json!({ "spec": { "replicas": 4 } })).await?.done()?;
    refuses(&patch("old", json!({ &memory: "x" })).await?, &[&memory])?;
    refuses(&patch("old", json!({ &cpu: "other" })).await?, &[&cpu])?;
    patch("old", json!({ &memory: "16Gi" })).await?.done()?;
    // An object becomes a node group although one of its annotations is ignored.
    refuses(&patch("no-group", json!({ &max: "5" })).await?, &[&cpu])?;
    patch("no-group", json!({ &max: "5", &cpu: "4" })).await?.done()?;
    refuses(&patch("no-group", json!({ &max: "-1" })).await?, &[&max])?;
    patch("old", json!({ &cpu: Value::Null })).await?.done()?;
    objects_that_come_into_scope_are_judged(api, &cpu, refuses).await
}

/// Of an object of another Cluster, or of a MachineSet of a MachineDeployment, nothing was judged before.
async fn objects_that_come_into_scope_are_judged(
    api: &Api,
    cpu: &String,
    refuses: impl Fn(&Answer, &[&String]) -> Result<()>,
) -> Result<()> {
    let mut other = named_anew(&object(&[(cpu, "old")]), "of-another-cluster");
    for path in ["/spec/clusterName", "/spec/template/spec/clusterName"] {
        *other.pointer_mut(path).context("no Cluster")? = json!("test");
    }
    api.create(&other).await?.done()?;
    let of_cluster =
        |name: &str| json!({ "spec": { "clusterName": name, "template": { "spec": { "clusterName": name } } } });
    refuses(&api.patch("MachineDeployment", "of-another-cluster", &of_cluster("prod")).await?, &[cpu])?;
    let mut right = of_cluster("prod");
    right["metadata"] = json!({ "annotations": { cpu: "4" } });
    api.patch("MachineDeployment", "of-another-cluster", &right).await?.done()?;
    // An object that leaves is judged by what changes, as any other.
    api.patch("MachineDeployment", "of-another-cluster", &of_cluster("test")).await?.done()?;

    let mut set = named_anew(&object(&[(cpu, "old")]), "owned");
    set["kind"] = json!("MachineSet");
    let owner =
        json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "a", "uid": "b" });
    set["metadata"]["ownerReferences"] = json!([owner]);
    api.create(&set).await?.done()?;
    let alone = json!({ "metadata": { "ownerReferences": null } });
    refuses(&api.patch("MachineSet", "owned", &alone).await?, &[cpu])?;
    Ok(())
}
