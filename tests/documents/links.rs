//! Checks the links between documents.

use std::{collections::BTreeSet, fs};

use super::{documents, examples::EXAMPLES, read, root};

/// Returns the targets of the links in a document, except those in code blocks.
fn links(document: &str) -> Vec<String> {
    let mut in_code = false;
    let text: String = document
        .lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            !in_code && !fence
        })
        .collect::<Vec<_>>()
        .join(" ");
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    inline.map(str::to_owned).collect()
}

/// Returns the anchors of a document, as GitHub generates them.
pub(crate) fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
        })
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let topologies = fs::read_dir(root().join("examples/topologies")).unwrap().map(|entry| entry.unwrap().path());
    let topologies = topologies.map(|path| if path.is_dir() { path.join("README.md") } else { path });
    let others = [
        "charts/capi-autoscaler-cluster/README.md",
        "charts/capi-autoscaler-provider/README.md",
        "crates/fuzz/README.md",
        "crates/shared-informer/README.md",
        "examples/fleet/README.md",
        "tests/fixtures/README.md",
        ".github/pull_request_template.md",
    ];
    for path in documents().into_iter().chain(topologies).chain(others.map(|path| root().join(path))) {
        let document = fs::read_to_string(&path).unwrap();
        for link in links(&document).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", path.display());
            if !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&target).unwrap());
                assert!(anchors.contains(anchor), "{}: {link}: no such heading", path.display());
            }
        }
    }
}

/// The README links the index of the documentation, which links each page.
#[test]
fn every_document_and_example_is_linked_from_the_readme_or_the_index_of_the_documentation() {
    let mut linked: BTreeSet<_> = links(&read("README.md")).into_iter().collect();
    assert!(linked.contains("docs/README.md"));
    let index = links(&read("docs/README.md"));
    linked.extend(index.iter().map(|link| link.strip_prefix("../").map_or(format!("docs/{link}"), str::to_owned)));
    let documents = documents().into_iter().map(|path| path.strip_prefix(root()).unwrap().display().to_string());
    let examples = EXAMPLES.iter().map(|path| (*path).to_owned());
    for path in documents.chain(examples).filter(|path| path != "README.md") {
        assert!(linked.contains(&path), "neither README.md nor docs/README.md links {path}");
    }
}
