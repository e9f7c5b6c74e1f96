#!/usr/bin/env python3
"""An installed w4moe as other projects meet it: find_package, pkg-config, headers, C and C++, a moved prefix.

Arguments: the build folder, an empty work folder, the C++ compiler, and the version. Everything happens below the work folder.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = WORK = COMPILER = VERSION = TREE = ""
PLANNED = re.compile(r"\d+ kernels, \d+ bytes of scratch\n")
RAN = re.compile(r"ran 5 tokens: ok, relative RMSE \d")
C_EXAMPLE = os.path.join(HERE, "..", "..", "docs", "examples", "moe_layer.c")
C_COMPILER = os.environ.get("CC", "cc")


def run(*command, **environment):
    """stdout of a command that must succeed."""
    result = subprocess.run(command, env=dict(os.environ, **environment), text=True, capture_output=True, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def library_folder(tree):
    """The folder that holds the library: lib, lib64 or a multi-arch one."""
    for folder, _, names in os.walk(tree):
        if "libw4moe.so" in names:
            return folder
    raise AssertionError(f"no libw4moe.so below {tree}")


def installed_headers():
    top = os.path.join(TREE, "include")
    found = []
    for folder, _, names in os.walk(top):
        found += [os.path.relpath(os.path.join(folder, name), top) for name in names]
    return sorted(found)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        # Installed to one place and moved to another: a package must not know where it was built or first installed.
        first = os.path.join(WORK, "first")
        run("cmake", "--install", BUILD, "--prefix", first)
        os.rename(first, TREE)

    def test_find_package(self):
        source = os.path.join(WORK, "consumer")
        shutil.copytree(os.path.join(HERE, "consumer"), source)
        shutil.copy(C_EXAMPLE, source)
        shutil.copy(C_EXAMPLE, os.path.join(source, "moe_layer.cpp"))  # the header serves C++ as well
        listing = os.path.join(source, "CMakeLists.txt")
        text = read(listing).replace("@version@", VERSION)
        with open(listing, "w", encoding="utf-8") as file:
            file.write(text)
        build = os.path.join(WORK, "consumer-build")
        run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={TREE}", f"-DCMAKE_CXX_COMPILER={COMPILER}",
            "-DCMAKE_BUILD_TYPE=Debug")
        run("cmake", "--build", build)
        shared, static = run(os.path.join(build, "with_shared")), run(os.path.join(build, "with_static"))
        self.assertRegex(shared, PLANNED)
        self.assertEqual(shared, static)
        # E1: the C interface, from C and from C++, up to the output of a layer on the lock-step device.
        environment = {"W4MOE_CACHE_DIR": os.path.join(WORK, "cache")}
        from_c, from_cpp = run(os.path.join(build, "with_c"), **environment), run(os.path.join(build, "with_c_in_cpp"), **environment)
        self.assertRegex(from_c, RAN)
        self.assertEqual(from_c, from_cpp)

    def test_pkg_config(self):
        libraries = library_folder(TREE)
        # The file says where it was installed; a moved tree is found with --define-prefix, as on other systems.
        config = os.path.join(libraries, "pkgconfig")
        flags = ["pkg-config", f"--define-variable=prefix={TREE}"]
        environment = {"PKG_CONFIG_PATH": config}
        self.assertEqual(run(*flags, "--modversion", "w4moe", **environment).strip(), VERSION)
        cflags = run(*flags, "--cflags", "w4moe", **environment).split()
        libs = run(*flags, "--libs", "w4moe", **environment).split()
        self.assertEqual(cflags, [f"-I{TREE}/include"])
        self.assertEqual(libs, [f"-L{libraries}", "-lw4moe"])
        program = os.path.join(WORK, "pkg-config-consumer")
        run(COMPILER, "-std=c++20", *cflags, os.path.join(HERE, "consumer", "main.cpp"), *libs, "-o", program)
        self.assertRegex(run(program, LD_LIBRARY_PATH=libraries), PLANNED)

        static = run(*flags, "--static", "--libs", "w4moe", **environment).split()
        archive = [os.path.join(libraries, "libw4moe.a") if flag == "-lw4moe" else flag for flag in static]
        run(COMPILER, "-std=c++20", *cflags, os.path.join(HERE, "consumer", "main.cpp"), *archive, "-o", program)
        self.assertRegex(run(program), PLANNED)

    def test_pkg_config_from_c(self):
        libraries = library_folder(TREE)
        flags = ["pkg-config", f"--define-variable=prefix={TREE}", "--cflags", "--libs", "w4moe_c"]
        words = run(*flags, PKG_CONFIG_PATH=os.path.join(libraries, "pkgconfig")).split()
        self.assertEqual(words, [f"-I{TREE}/include", f"-L{libraries}", "-lw4moe_c"])
        program = os.path.join(WORK, "c-consumer")
        run(C_COMPILER, "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", C_EXAMPLE, *words, "-lm", "-o", program)
        self.assertRegex(run(program, LD_LIBRARY_PATH=libraries, W4MOE_CACHE_DIR=os.path.join(WORK, "cache")), RAN)

    def test_the_commands_of_the_documentation(self):
        root = os.path.join(HERE, "..", "..")
        (commands,) = re.findall(r"^```sh\n(.*?)^```$", read(root, "docs", "c-api.md"), re.M | re.S)
        home = os.path.join(WORK, "home")
        os.makedirs(home)
        os.symlink(TREE, os.path.join(home, "w4moe"))
        script = "set -eu\ncd '" + root + "'\n" + commands.replace("w4moe/lib", "w4moe/" + os.path.relpath(library_folder(TREE), TREE))
        self.assertRegex(run("bash", "-c", script, HOME=home, W4MOE_CACHE_DIR=os.path.join(WORK, "cache")), RAN)

    def test_pkg_config_paths_are_joined_right(self):
        for name in ("w4moe.pc", "w4moe_c.pc"):
            text = read(library_folder(TREE), "pkgconfig", name)
            for line in text.splitlines():
                self.assertNotRegex(line, r"\$\{prefix\}//|[^:]//", "a path was put together from two absolute ones")
            self.assertIn("includedir=${prefix}/include", text)

    def test_each_public_header_compiles_alone(self):
        headers = installed_headers()
        self.assertIn("w4moe/plan.hpp", headers)
        self.assertIn("w4moe/contract/prelude.h", headers)
        for header in headers:
            with self.subTest(header):
                self.assertTrue(header.startswith("w4moe/"), "a header outside include/w4moe may meet somebody else's")
                self.assertNotIn('#include "contract/', read(TREE, "include", header))
                if header == "w4moe/w4moe.h":
                    run(C_COMPILER, "-x", "c", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror", "-include", os.path.join(TREE, "include", header), "/dev/null")
                language = ["-x", "c++", "-std=c++20"]
                run(COMPILER, *language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{TREE}/include", "-include",
                    os.path.join(TREE, "include", header), "/dev/null")

    def test_the_command_line_tool_runs_from_anywhere(self):
        tool = os.path.join(TREE, "bin", "w4moe")
        if not os.path.exists(tool):
            self.skipTest("built without W4MOE_TOOLS")
        self.assertEqual(json.loads(run(tool, "version", "--json"))["version"], VERSION)
        plan = json.loads(run(tool, "plan", "--model", "gpt-oss-120b", "--max-tokens", "64", "--arch", "sm_90a", "--json"))
        self.assertGreater(plan["scratch_bytes"], 0)

    def test_the_shared_library_shows_only_its_own_names(self):
        listing = run("nm", "-DC", "--defined-only", os.path.join(library_folder(TREE), "libw4moe.so"))
        names = [line.split(" ", 2)[2] for line in listing.splitlines()]
        strangers = [name for name in names if not re.match(r"((vtable|typeinfo|typeinfo name) for )?.*w4moe::", name)]
        self.assertEqual(strangers, [])
        self.assertTrue(any(name.startswith("w4moe::make_plan") for name in names))

    def test_completions_and_the_manual_page_are_in_place(self):
        tool = os.path.join(TREE, "bin", "w4moe")
        if not os.path.exists(tool):
            self.skipTest("built without the command line")
        for path, command in (("bash-completion/completions/w4moe", ("completion", "bash")), ("zsh/site-functions/_w4moe", ("completion", "zsh")),
                              ("fish/vendor_completions.d/w4moe.fish", ("completion", "fish")), ("man/man1/w4moe.1", ("man",))):
            self.assertEqual(read(TREE, "share", path), run(tool, *command))

    def test_the_tree_holds_no_path_of_the_build(self):
        for folder, _, names in os.walk(TREE):
            for name in names:
                if name.endswith((".cmake", ".pc", ".h", ".hpp")):
                    self.assertNotIn(BUILD + "/", read(folder, name).replace(os.path.join(WORK, "first"), ""))


if __name__ == "__main__":
    BUILD, WORK, COMPILER, VERSION = sys.argv[1:5]
    TREE = os.path.join(WORK, "tree")
    unittest.main(argv=sys.argv[:1])
