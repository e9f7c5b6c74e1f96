"""Every example of docs/python.md that needs no GPU, in the order of the page and in one namespace."""
import os
import re
import subprocess
import sys

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "python.md")


def blocks(language):
    with open(DOCS, encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```$", file.read(), re.M | re.S)


def test_examples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoints", "make_checkpoints.py")
    subprocess.run([sys.executable, maker, tmp_path, "gpt-oss"], check=True)
    ran = blocks("python")
    assert len(ran) == 5
    for text in ran:
        exec(compile(text, "docs/python.md", "exec"), names)
    assert "topk_ids: u8 [5, 2] on cpu, expected i32 or i64" in capsys.readouterr().out


def test_examples_for_a_gpu_compile():
    (text,) = blocks("python gpu")
    compile(text, "docs/python.md", "exec")
