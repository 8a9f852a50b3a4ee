//! What `lock check` takes a word for.

use crate::support::*;

#[test]
fn a_word_with_a_kind_is_a_resource_whatever_its_kind() {
    let world = World::new();
    let (a, b) = (world.clone("a"), world.clone("b"));
    for resource in ["deploy:prod", "issue:8057324b", "intent:x/y", "path:a:b"] {
        a.acquire(resource, "1h").ok();
        b.tenure(&["lock", "check", resource]).exits(4);
        a.tenure(&["lock", "check", resource]).ok();
    }
    b.tenure(&["lock", "check", "deploy:test"]).ok();
    for bad in ["deploy:", "intent:x", "path:../x"] {
        b.tenure(&["lock", "check", bad]).exits(2);
    }
    // A file with a colon in its name, written as a path.
    for file in ["./a:b", "src/../a:b"] {
        b.tenure(&["lock", "check", file]).exits(4);
    }
    b.tenure(&["lock", "check", "README:md"]).ok();
}

#[test]
fn the_short_flag_goes_in_front_of_the_command_too() {
    let world = World::new();
    let a = world.clone("a");
    assert_eq!(a.run("grite", &["-q", "lock", "status"]).ok().out, "");
}
