//! Redaction of the values of Secrets, wherever one stands in an object or in a text; of tokens and files that
//! kubeadm's configuration holds in clear text; and of the copies that `kubectl apply` keeps in an annotation. A mark
//! replaces each value, and a digest with a per-process key reveals whether the value changed; neither value nor
//! digest must ever be shown.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use serde_json::{Map, Value};

use super::pattern::escape;

/// The mark that replaces a value of a Secret.
pub(super) const SECRET: &str = "[secret]";
/// The mark that replaces a copy of the object.
pub(super) const NOT_SHOWN: &str = "[not shown]";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The paths at which kubeadm's configuration holds secrets in clear text: a bootstrap token lets its holder join a
/// Node, and files are often keys and kubeconfigs. `*` is every item or value.
const OF_KUBEADM: [&[&str]; 8] = [
    &["initConfiguration", "bootstrapTokens", "*", "token"],
    &["joinConfiguration", "discovery", "bootstrapToken", "token"],
    &["joinConfiguration", "discovery", "tlsBootstrapToken"],
    &["joinConfiguration", "discovery", "file", "kubeConfig", "user", "authProvider", "config", "*"],
    &["joinConfiguration", "discovery", "file", "kubeConfig", "user", "exec", "env", "*", "value"],
    &["files", "*", "content"],
    &["users", "*", "passwd"],
    &["ignition", "containerLinuxConfig", "additionalConfig"],
];

/// Random at every start, so that a digest reveals nothing about a value to anyone else.
static DIGEST: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Digests of redacted values, by JSON pointer.
pub(super) type Redacted = BTreeMap<String, u64>;

/// Redacts `value`; `secret` is true if it is a Secret itself.
pub(super) fn redact(value: &mut Value, secret: bool) -> Redacted {
    let mut redacted = Redacted::new();
    walk(value, secret, &mut String::new(), &mut redacted);
    redacted
}

fn walk(value: &mut Value, secret: bool, path: &mut String, redacted: &mut Redacted) {
    match value {
        Value::Object(map) => {
            let secret = secret || is_secret(map);
            // A list may leave out the kind of its items.
            let secrets = text(map, "kind") == Some("SecretList");
            if secret {
                redact_values(map, path, redacted);
            }
            redact_kubeadm(map, path, redacted);
            redact_annotations(map, secret, path, redacted);
            for (key, value) in map {
                let within = secrets && key == "items";
                at(path, key, |path| match value {
                    Value::Array(items) if within => {
                        for (index, item) in items.iter_mut().enumerate() {
                            at(path, &index.to_string(), |path| walk(item, true, path, redacted));
                        }
                    }
                    value => walk(value, false, path, redacted),
                });
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                at(path, &index.to_string(), |path| walk(item, false, path, redacted));
            }
        }
        Value::String(text) if holds_a_secret(text) => mark(value, SECRET, path, redacted),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns true if a text holds the manifest of a Secret, as the ConfigMaps of a ClusterResourceSet do: in YAML, in
/// JSON, or in either within JSON. Such a text is redacted as a whole, because finding its secret parts would take a
/// parser for each form.
fn holds_a_secret(text: &str) -> bool {
    let is_secret = |value: &str| {
        let rest = value.strip_prefix("Secret").map(|rest| rest.strip_prefix("List").unwrap_or(rest));
        rest.is_some_and(|rest| !rest.starts_with(is_of_a_word))
    };
    text.contains("Secret")
        && values_of("kind", text).any(is_secret)
        && ["data", "stringData"].into_iter().any(|key| values_of(key, text).next().is_some())
}

/// Returns the text after each occurrence of a key.
fn values_of<'a>(key: &'static str, text: &'a str) -> impl Iterator<Item = &'a str> {
    let quote = ['"', '\'', '\\'];
    text.match_indices(key).filter_map(move |(at, _)| {
        let (before, behind) = (&text[..at], &text[at + key.len()..]);
        // Within JSON, the line before the key ends in an escape such as `\n`.
        if before.ends_with(is_of_a_word) && !["\\n", "\\r", "\\t"].into_iter().any(|end| before.ends_with(end)) {
            return None;
        }
        let value = behind.trim_start_matches(quote).trim_start().strip_prefix(':')?;
        Some(value.trim_start().trim_start_matches(quote))
    })
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
}

/// Returns true for a Secret of the core group, in any version.
fn is_secret(map: &Map<String, Value>) -> bool {
    text(map, "kind") == Some("Secret") && text(map, "apiVersion").is_none_or(|version| !version.contains('/'))
}

fn redact_values(map: &mut Map<String, Value>, path: &mut String, redacted: &mut Redacted) {
    for field in ["data", "stringData"] {
        match map.get_mut(field) {
            Some(Value::Object(values)) => at(path, field, |path| mark_all(values, path, redacted)),
            None | Some(Value::Null) => {}
            Some(odd) => at(path, field, |path| mark(odd, SECRET, path, redacted)),
        }
    }
}

/// Redacts the secrets in the kinds of Cluster API's kubeadm providers. This comes before any other redaction of the
/// object, so that each digest is that of the original value.
fn redact_kubeadm(map: &mut Map<String, Value>, path: &mut String, redacted: &mut Redacted) {
    let group = text(map, "apiVersion").and_then(|version| version.split_once('/')).map(|(group, _)| group);
    let within: &[&str] = match (group, text(map, "kind")) {
        (Some("bootstrap.cluster.x-k8s.io"), Some("KubeadmConfig")) => &["spec"],
        (Some("bootstrap.cluster.x-k8s.io"), Some("KubeadmConfigTemplate")) => &["spec", "template", "spec"],
        (Some("controlplane.cluster.x-k8s.io"), Some("KubeadmControlPlane")) => &["spec", "kubeadmConfigSpec"],
        (Some("controlplane.cluster.x-k8s.io"), Some("KubeadmControlPlaneTemplate")) => {
            &["spec", "template", "spec", "kubeadmConfigSpec"]
        }
        _ => return,
    };
    for secret in OF_KUBEADM {
        let segments = [within, secret].concat();
        let Some((first, rest)) = segments.split_first() else { continue };
        if let Some(value) = map.get_mut(*first) {
            at(path, first, |path| mark_at(value, rest, path, redacted));
        }
    }
}

fn mark_at(value: &mut Value, segments: &[&str], path: &mut String, redacted: &mut Redacted) {
    let Some((first, rest)) = segments.split_first() else {
        if !value.is_null() {
            mark(value, SECRET, path, redacted);
        }
        return;
    };
    match value {
        Value::Object(map) => {
            let below = map.iter_mut().filter(|(key, _)| *first == "*" || key == first);
            below.for_each(|(key, value)| at(path, key, |path| mark_at(value, rest, path, redacted)));
        }
        Value::Array(items) if *first == "*" => {
            let items = items.iter_mut().enumerate();
            items.for_each(|(index, item)| at(path, &index.to_string(), |path| mark_at(item, rest, path, redacted)));
        }
        // A string in place of an object may be secret as well.
        Value::String(_) => mark(value, SECRET, path, redacted),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {}
    }
}

/// Redacts the annotations: all of a Secret, since tools keep copies of whole objects there under any name, and the
/// copy of `kubectl apply` of every other object.
fn redact_annotations(map: &mut Map<String, Value>, secret: bool, path: &mut String, redacted: &mut Redacted) {
    let Some(Value::Object(metadata)) = map.get_mut("metadata") else { return };
    let Some(annotations) = metadata.get_mut("annotations") else { return };
    at(path, "metadata", |path| {
        at(path, "annotations", |path| match annotations {
            Value::Object(annotations) if secret => {
                annotations.remove(LAST_APPLIED);
                mark_all(annotations, path, redacted);
            }
            Value::Object(annotations) => {
                if let Some(copy) = annotations.get_mut(LAST_APPLIED) {
                    at(path, LAST_APPLIED, |path| mark(copy, NOT_SHOWN, path, redacted));
                }
            }
            odd if secret => mark(odd, SECRET, path, redacted),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
        });
    });
}

fn mark_all(values: &mut Map<String, Value>, path: &mut String, redacted: &mut Redacted) {
    for (key, value) in values {
        at(path, key, |path| mark(value, SECRET, path, redacted));
    }
}

fn mark(value: &mut Value, mark: &str, path: &str, redacted: &mut Redacted) {
    redacted.insert(path.to_owned(), DIGEST.hash_one(value.to_string()));
    *value = mark.into();
}

/// Calls `then` with the path extended by one key.
fn at(path: &mut String, key: &str, then: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&escape(key));
    then(path);
    path.truncate(length);
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str)
}
