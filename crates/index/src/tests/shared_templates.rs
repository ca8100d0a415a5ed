//! Indexes that share templates are readers of those to which their groups refer.

use std::sync::Arc;

use rules::capi::ObjectKey;
use serde_json::json;

use crate::{Change, Index, SharedTemplates, TemplateReader, objects::*};

fn readers(templates: &SharedTemplates, name: &str) -> Vec<TemplateReader> {
    let template = template(name, &json!({"cpu": "4", "memory": "16Gi"})).template();
    templates.set(&kind(), &ObjectKey::new(NAMESPACE, name), template)
}

#[test]
fn an_index_reads_the_templates_to_which_its_groups_refer() {
    let templates = Arc::<SharedTemplates>::default();
    let [one, other] = [(); 2].map(|()| Index::new(rules()).sharing(&templates));
    let of = |index: &Index| index.template_reader().unwrap();
    one.apply(deployment("a", 1, ("0", "9"), &using_template("large")));
    one.apply(deployment("b", 1, ("0", "9"), &using_template("large")));
    other.apply(deployment("a", 1, ("0", "9"), &using_template("large")));
    assert_eq!(readers(&templates, "large"), [of(&one), of(&other)]);
    assert!(readers(&templates, "small").is_empty());

    one.apply(deployment("a", 1, ("0", "9"), &using_template("small")));
    assert_eq!(readers(&templates, "large"), [of(&one), of(&other)], "b still refers to it");
    assert_eq!(readers(&templates, "small"), [of(&one)]);
    one.apply(Change::ScalableGone(id("MachineDeployment/team-a/b")));
    assert_eq!(readers(&templates, "large"), [of(&other)]);

    let last = of(&other);
    other.release_templates();
    assert!(readers(&templates, "large").is_empty(), "{last:?} has released them");
    other.apply(deployment("a", 2, ("0", "9"), &using_template("small")));
    assert_eq!(readers(&templates, "small"), [of(&one)]);
}
