//! Hooks that were there before: they run as if nothing stood before them, and come back.

use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::*;

fn hook(place: &Place, file: &str, lines: &str) {
    place.write(file, &format!("#!/bin/sh\n{lines}\n"));
    std::fs::set_permissions(place.dir.join(file), PermissionsExt::from_mode(0o755)).expect("executable");
}

fn install(place: &Place) {
    place.tenure(&["hooks", "install", "--policy", "warn"]).ok();
}

/// Hooks that all are one dispatcher, which looks for its user's script by its own name, one folder up.
fn dispatched(place: &Place) {
    place.git(&["config", "core.hooksPath", ".husky/_"]).ok();
    place.write(".husky/_/.gitignore", "*");
    place.write(
        ".husky/_/h",
        "s=$(dirname \"$(dirname \"$0\")\")/$(basename \"$0\")\n[ ! -f \"$s\" ] && exit 0\nsh -e \"$s\"\n",
    );
    for name in ["pre-commit", "commit-msg"] {
        hook(place, &format!(".husky/_/{name}"), ". \"$(dirname \"$0\")/h\"");
    }
    place.write(".husky/pre-commit", "echo dispatched >&2\ntest ! -e stop\n");
}

#[test]
fn a_hook_that_was_there_still_runs_first_and_comes_back() {
    let world = World::new();
    let a = world.alone("a");
    hook(&a, ".git/hooks/pre-commit", "echo earlier hook >&2\ntest ! -e stop");
    install(&a);
    install(&a);
    a.write("x", "1");
    assert!(a.commit().ok().err.contains("earlier hook"));
    a.write("stop", "");
    assert_ne!(a.commit().code, Some(0));
    a.tenure(&["hooks", "uninstall"]).ok();
    let back = std::fs::read_to_string(a.dir.join(".git/hooks/pre-commit")).expect("back");
    assert!(back.contains("earlier hook"));
    assert!(!a.dir.join(".git/hooks.before-tenure").exists());
    for outside in ["/tmp", "."] {
        a.git(&["config", "core.hooksPath", outside]).ok();
        a.tenure(&["hooks", "install"]).exits(2);
    }
}

#[test]
fn a_hook_that_goes_by_its_own_name_and_folder_is_not_silenced() {
    let world = World::new();
    let a = world.alone("a");
    dispatched(&a);
    install(&a);
    a.write("x", "1");
    assert!(a.commit().ok().err.contains("dispatched"));
    assert!(!a.git(&["ls-files"]).ok().out.contains("before-tenure"));
    a.write("stop", "");
    assert_ne!(a.commit().code, Some(0));
    // The tool writes its hooks anew, over ours.
    hook(&a, ".husky/_/pre-commit", ". \"$(dirname \"$0\")/h\"");
    install(&a);
    assert_ne!(a.commit().code, Some(0));
    a.tenure(&["hooks", "uninstall"]).ok();
    assert_ne!(a.commit().code, Some(0));
    assert!(!a.dir.join(".husky/_.before-tenure").exists());
}

#[test]
fn a_hook_that_sources_a_file_beside_it_finds_it() {
    let world = World::new();
    let a = world.alone("a");
    a.write(".git/hooks/common.sh", "say() { echo \"common says $1\" >&2; }\n");
    hook(&a, ".git/hooks/pre-commit", ". \"$(dirname \"$0\")/common.sh\"\nsay \"$(basename \"$0\")\"");
    install(&a);
    a.write("x", "1");
    assert!(a.commit().ok().err.contains("common says pre-commit"));
    a.tenure(&["hooks", "uninstall"]).ok();
    a.write("x", "2");
    assert!(a.commit().ok().err.contains("common says pre-commit"));
}

#[test]
fn a_hook_in_a_folder_behind_a_link_still_runs_first() {
    let world = World::new();
    let a = world.alone("a");
    hook(&a, "tools/hooks/pre-commit", "echo earlier hook >&2");
    let _ = std::fs::remove_dir_all(a.dir.join(".git/hooks"));
    symlink("../tools/hooks", a.dir.join(".git/hooks")).expect("linked");
    install(&a);
    a.write("x", "1");
    assert!(a.commit().ok().err.contains("earlier hook"));
    a.tenure(&["hooks", "uninstall"]).ok();
    a.write("x", "2");
    assert!(a.commit().ok().err.contains("earlier hook"));
}

#[test]
fn a_link_is_kept_as_a_link_and_nothing_is_written_through_it() {
    let world = World::new();
    let a = world.alone("a");
    let link = a.dir.join(".git/hooks/pre-commit");
    let _ = std::fs::create_dir_all(a.dir.join(".git/hooks"));
    symlink("../../scripts/check", &link).expect("linked");
    install(&a);
    assert!(!a.dir.join("scripts/check").exists());
    a.write("x", "1");
    a.commit().ok();
    hook(&a, "scripts/check", "echo checked >&2");
    assert!(a.commit().ok().err.contains("checked"), "what it leads to may come later");
    a.tenure(&["hooks", "uninstall"]).ok();
    assert_eq!(std::fs::read_link(&link).expect("a link").to_str(), Some("../../scripts/check"));
}

#[test]
fn hooks_of_an_earlier_version_are_taken_over_and_go() {
    let world = World::new();
    let a = world.alone("a");
    let earlier = |a: &Place| {
        hook(a, ".git/hooks/pre-commit.before-tenure", "basename \"$0\" >&2");
        hook(a, ".git/hooks/pre-commit", "# tenure hooks: written by 'tenure hooks install'\n\"$0.before-tenure\"");
    };
    let is_back = |a: &Place| {
        a.tenure(&["hooks", "uninstall"]).ok();
        assert!(!a.dir.join(".git/hooks/pre-commit.before-tenure").exists());
        let back = std::fs::read_to_string(a.dir.join(".git/hooks/pre-commit")).expect("back");
        assert!(back.contains("basename"), "{back}");
        std::fs::remove_file(a.dir.join(".git/hooks/pre-commit")).expect("removed");
    };
    earlier(&a);
    is_back(&a);
    earlier(&a);
    install(&a);
    a.write("x", "1");
    assert_eq!(a.commit().ok().err, "pre-commit\n");
    is_back(&a);
}
