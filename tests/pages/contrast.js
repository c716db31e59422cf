() => {
  const numbers = colour => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([red, green, blue]) => [red, green, blue]
    .map(value => value / 255)
    .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = element => {
    const colour = numbers(getComputedStyle(element).backgroundColor);
    return colour[3] === 0 ? ground(element.parentElement) : colour;
  };
  const contrast = element => {
    const [low, high] = [luminance(numbers(getComputedStyle(element).color)), luminance(ground(element))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = {
    body: document.body, soft: document.querySelector("#count"), holds: document.querySelector(".meanings .holds"),
    deviates: document.querySelector(".meanings .deviates"), unknown: document.querySelector(".meanings .unknown"),
    "not-supported": document.querySelector(".meanings .not-supported"),
  };
  return Object.fromEntries(Object.entries(found).map(([name, element]) => [name, contrast(element)]));
}
