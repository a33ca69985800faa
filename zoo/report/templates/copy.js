// A button that copies each block of commands, by the one call that pages without https have, too.
for (const block of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(block);
    button.textContent = document.execCommand("copy") ? "copied" : "press Ctrl-C";
  });
  block.before(button);
}
