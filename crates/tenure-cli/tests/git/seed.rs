//! The guide's own shell blocks, cut out of it and run literally with the program as `grite`: alone, and while a second
//! clone holds the lock. The outputs that the guide shows are compared.
//!
//! The guide is not part of this repository: `TENURE_SEEDS` names the folder it is in, `../shared/seeds` otherwise.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::*;

const GUIDE: &str = "002_024e01521c255f6e.txt";

/// What the guide's loops and comments stand for: time passes, work is done twice.
const PRELUDE: &str = r#"
sleep() { :; }
turns=0
again() { turns=$((turns + 1)); [ "$turns" -le 2 ]; }
migration_in_progress() { again; }
working() { again; }
process_issue() { echo "processed $1"; }
"#;

struct Block {
    language: String,
    text: String,
}

/// All fenced blocks of the guide; none if it is not here.
fn blocks() -> Option<Vec<Block>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("TENURE_SEEDS").map_or_else(|| root.join("../shared/seeds"), PathBuf::from);
    let Ok(text) = std::fs::read_to_string(folder.join(GUIDE)) else {
        println!("skipped: {GUIDE} is not in {}; set TENURE_SEEDS", folder.display());
        return None;
    };
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some(Block { language: language.to_owned(), text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text.push_str(&format!("{line}\n")),
            (None, None) => {}
        }
    }
    Some(blocks)
}

fn shell_blocks(blocks: &[Block]) -> Vec<&str> {
    let shell: Vec<&str> =
        blocks.iter().filter(|block| block.language == "bash").map(|block| block.text.as_str()).collect();
    assert_eq!(shell.len(), 16, "the guide has other blocks than it had");
    shell
}

/// Replaces what varies: moments, ids, spans.
fn pattern(text: &str) -> String {
    let kind = |word: &str| {
        let hex = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let date = word.len() == 10 && word.split('-').count() == 3;
        let time = word.len() == 8 && word.split(':').count() == 3;
        let span =
            word.len() > 1 && word.ends_with('m') && word.trim_end_matches('m').bytes().all(|b| b.is_ascii_digit());
        match (date, time, span, hex) {
            (true, ..) => "DATE".to_owned(),
            (_, true, ..) => "TIME".to_owned(),
            (_, _, true, _) => "SPAN".to_owned(),
            (_, _, _, true) => format!("HEX{}", word.len()),
            _ => word.to_owned(),
        }
    };
    let line = |line: &str| line.split(' ').map(kind).collect::<Vec<_>>().join(" ");
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Every key of the guide's JSON, with the kind of its value, is in ours.
fn has_shape(ours: &Value, guide: &Value, at: &str) {
    match (ours, guide) {
        (Value::Object(ours), Value::Object(guide)) => {
            for (key, value) in guide {
                let own = ours.get(key).unwrap_or_else(|| panic!("{at}.{key} is missing"));
                has_shape(own, value, &format!("{at}.{key}"));
            }
        }
        (Value::Array(ours), Value::Array(guide)) => {
            if let (Some(own), Some(value)) = (ours.first(), guide.first()) {
                has_shape(own, value, &format!("{at}[0]"));
            }
        }
        _ => assert_eq!(std::mem::discriminant(ours), std::mem::discriminant(guide), "{at}"),
    }
}

struct Scene {
    mine: Place,
    other: Place,
    env: BTreeMap<&'static str, String>,
    _world: World,
}

impl Scene {
    fn new() -> Scene {
        let world = World::new();
        let (mine, other) = (world.clone("mine"), world.clone("other"));
        mine.write("config/settings.json", "{}");
        let made = other.tenure(&["issue", "create", "--title", "Work", "--json"]).ok().json();
        let id = made["data"]["issue_id"].as_str().expect("an id").to_owned();
        let env = BTreeMap::from([("ID", id), ("RESOURCE", "path:stolen".to_owned())]);
        Scene { mine, other, env, _world: world }
    }

    fn run(&self, block: &str) -> Ran {
        let env: Vec<(&str, &str)> = self.env.iter().map(|(key, value)| (*key, value.as_str())).collect();
        self.mine.bash(&format!("{PRELUDE}\n{block}"), &env)
    }

    /// The resource that a block is about.
    fn resource(&self, block: &str) -> String {
        let (_, rest) = block.split_once("--resource \"").expect("a resource");
        let (name, _) = rest.split_once('"').expect("its end");
        name.replace("$ID", self.id()).replace("$RESOURCE", "path:stolen")
    }

    fn id(&self) -> &str {
        self.env.get("ID").map_or("", String::as_str)
    }
}

#[test]
fn every_block_of_the_guide_runs_as_written_when_nobody_is_in_the_way() {
    let Some(all) = blocks() else { return };
    for (number, block) in shell_blocks(&all).iter().enumerate() {
        let scene = Scene::new();
        // Renewing and releasing come after acquiring.
        if block.starts_with("grite lock renew") || block.starts_with("grite lock release") {
            scene.mine.acquire(&scene.resource(block), "30m").ok();
        }
        let ran = scene.run(block);
        assert_eq!(ran.code, Some(0), "block {}: {block}\n{ran:?}", number + 1);
        let left: Vec<String> = scene.mine.live().into_iter().map(|(resource, _)| resource).collect();
        let ends_with_release = block.contains("lock release") && !block.contains("issue list");
        if ends_with_release {
            assert!(left.is_empty(), "block {}: {left:?}", number + 1);
        }
    }
}

#[test]
fn every_block_of_the_guide_leaves_a_lock_of_somebody_else_alone() {
    let Some(all) = blocks() else { return };
    // What each block exits with under `set -e` while the other clone holds its resource; none: it names no resource.
    let expected = [
        Some(4),
        Some(4),
        Some(4),
        Some(4),
        Some(4),
        None,
        None,
        None,
        Some(0),
        Some(4),
        Some(4),
        Some(4),
        Some(0),
        Some(4),
        Some(4),
        Some(0),
    ];
    for ((number, block), code) in shell_blocks(&all).iter().enumerate().zip(expected) {
        let Some(code) = code else { continue };
        let scene = Scene::new();
        let resource = scene.resource(block);
        scene.other.acquire(&resource, "30m").ok();
        let before = scene.other.live();
        let ran = scene.run(block);
        assert_eq!(ran.code, Some(code), "block {}: {block}\n{ran:?}", number + 1);
        assert_eq!(scene.other.live(), before, "block {}", number + 1);
        let issue = scene.other.tenure(&["issue", "show", scene.id(), "--json"]).ok().json();
        assert_eq!(issue["data"]["issue"]["state"], "open", "block {}", number + 1);
        assert_eq!(issue["data"]["issue"]["comment_count"], 0, "block {}", number + 1);
    }
}

#[test]
fn the_outputs_that_the_guide_shows_are_the_ones_it_prints() {
    let Some(all) = blocks() else { return };
    let shell = shell_blocks(&all);
    let plain: Vec<&Block> = all.iter().filter(|block| block.language.is_empty()).collect();
    let json: Vec<Value> = all
        .iter()
        .filter(|block| block.language == "json")
        .map(|block| serde_json::from_str(&block.text).expect("json"))
        .collect();
    let scene = Scene::new();
    let (acquire, acquire_json, status, status_json) = (shell[0], shell[1], shell[5], shell[6]);
    assert_eq!(pattern(&scene.run(acquire).ok().out), pattern(&plain[0].text));
    has_shape(&scene.run(acquire_json).ok().json(), &json[0], "acquire");
    assert_eq!(pattern(&scene.run(status).ok().out), pattern(&plain[2].text));
    has_shape(&scene.run(status_json).ok().json(), &json[1], "status");
    let scene = Scene::new();
    scene.other.acquire("issue:8057324b", "30m").ok();
    let refused = scene.run(shell[2]).exits(4);
    assert_eq!((refused.out.as_str(), pattern(&refused.err)), ("", pattern(&plain[1].text)));
}

#[test]
fn claiming_works_once_and_a_worker_in_another_clone_takes_the_first_free_issue() {
    let Some(all) = blocks() else { return };
    let shell = shell_blocks(&all);
    let scene = Scene::new();
    let claimed = scene.run(shell[8]).ok();
    assert!(claimed.out.contains(&format!("Claimed issue {}", scene.id())), "{claimed:?}");
    let issue = scene.other.tenure(&["issue", "show", scene.id(), "--json"]).ok().json();
    assert_eq!(
        (&issue["data"]["issue"]["state"], &issue["data"]["issue"]["comment_count"]),
        (&"closed".into(), &1.into())
    );
    let scene = Scene::new();
    scene.other.acquire(&format!("issue:{}", scene.id()), "30m").ok();
    let refused = scene.run(shell[8]).ok();
    assert!(refused.out.contains("false\nIssue already claimed\n"), "{refused:?}");
    // Two free issues and one that is held: the loop takes the first free one.
    let made = |title: &str| {
        let made = scene.other.tenure(&["issue", "create", "--title", title, "--label", "todo", "--json"]).ok().json();
        made["data"]["issue_id"].as_str().expect("an id").to_owned()
    };
    let (held, free) = (made("held"), made("free"));
    scene.other.acquire(&format!("issue:{held}"), "30m").ok();
    let worker = shell[11].split_once("# Worker").expect("the worker's part").1;
    let ran = scene.run(&format!("#{worker}")).ok();
    assert!(
        ran.out.contains(&format!("processed {free}")) && !ran.out.contains(&format!("processed {held}")),
        "{ran:?}"
    );
}

#[test]
fn work_stealing_takes_a_lock_that_ran_out_and_keeps_it_as_the_parent() {
    let Some(all) = blocks() else { return };
    let block = shell_blocks(&all)[12];
    let scene = Scene::new();
    scene.mine.git(&["config", "tenure.skew", "0"]).ok();
    scene.other.acquire("path:stolen", "1s").ok();
    until("it runs out", || scene.mine.live().is_empty());
    let reference = scene.other.git(&["for-each-ref", "--format=%(objectname)", "refs/grite/locks"]).ok().out;
    scene.run(block).ok();
    assert_eq!(scene.mine.live().len(), 1);
    let parent = scene.mine.git(&["for-each-ref", "--format=%(parent)", "refs/grite/locks"]).ok().out;
    assert_eq!(parent, reference);
}
